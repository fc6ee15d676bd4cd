/* The command and the curl that do the same, kept up while the form is filled in. */

const WAIT_MS = 500;
const form = document.getElementById("run-form");
let waits = 0;
let asked = 0;

async function show() {
  const number = ++asked;
  const content = new FormData(form);
  content.set("preview", "yes");
  const response = await fetch(location.href, { method: "POST", body: content, headers: { "X-Live": "1" } }).catch(() => null);
  if (!response?.ok || number !== asked) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  document.getElementById("commands").replaceWith(page.getElementById("commands"));
}

form?.addEventListener("input", () => {
  clearTimeout(waits);
  waits = setTimeout(show, WAIT_MS);
});
