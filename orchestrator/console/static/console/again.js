/* The page for a database that is away: asks until it is back, then goes to where one was. */

const EVERY_MS = 3_000;
const url = document.body.dataset.again;

async function look() {
  try {
    const response = await fetch(url, { headers: { "X-Live": "1" }, cache: "no-store" });
    if (response.status !== 503) return location.replace(url);
  } catch {
    // the server itself is away
  }
  setTimeout(look, EVERY_MS);
}

setTimeout(look, EVERY_MS);
