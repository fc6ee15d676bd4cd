/* Keeps a page up: a stream says which topics moved, then the live part is asked for again and changed
   in place. Without a stream it asks every ten seconds. The header says which of them it is. */

const POLL_MS = 10_000;
const LEAST_MS = 1_000;
const REST = 4; // times as long as the last answer took: a busy server is asked less often
const MOST_BACKOFF_MS = 15_000;
const OVER = [401, 403, 404]; // answers that do not change by asking again: the page itself says what is wrong
const LEAVING_MS = 15_000; // for so long after a link or a form its answer may still come
const TEXTS = { connecting: "connecting", live: "live", polling: "every 10 s", paused: "paused", still: "not live" };

const button = document.getElementById("pulse");
let stream = null;
let poll = 0;
let retry = 0;
let failures = 0;
let paused = false;
let lostSince = "";
let asking = null;
let again = false;
let dueAt = 0;
let shown = "";
let leftAt = -LEAVING_MS;

const part = () => document.getElementById("live");

function say(state) {
  const text = state === "lost" ? `not connected since ${lostSince}` : TEXTS[state];
  button.dataset.state = state;
  const label = button.querySelector("[role=status]");
  if (label.textContent !== text) label.textContent = text;
}

function sayWhatIs() {
  if (paused) say("paused");
  else if (lostSince) say("lost");
  else say(stream?.readyState === EventSource.OPEN ? "live" : "polling");
}

/* Ask for the live part: one request at a time, at most one a second, and fewer while answers are slow. */
export function refresh() {
  if (!part()) return;
  if (asking || paused || document.hidden) {
    again = true;
    return;
  }
  const wait = Math.max(0, dueAt - Date.now());
  asking = setTimeout(async () => {
    if (paused || document.hidden) {
      asking = null; // who shows the page again asks
      return;
    }
    const askedAt = Date.now();
    again = false;
    await ask();
    const now = Date.now();
    dueAt = Math.max(askedAt + LEAST_MS, now + Math.min(POLL_MS, REST * (now - askedAt)));
    asking = null;
    if (again) refresh();
  }, wait);
}

async function ask() {
  const headers = { "X-Live": "1" };
  if (part().dataset.first) headers["X-First"] = part().dataset.first;
  try {
    const response = await fetch(location.href, { headers, cache: "no-store" });
    if (OVER.includes(response.status)) {
      // a form that was sent may have ended what this page is about: its answer says so better
      if (performance.now() - leftAt >= LEAVING_MS) location.reload();
      return;
    }
    if (!response.ok) throw new Error(String(response.status));
    change(await response.text());
    lostSince = "";
  } catch {
    lostSince ||= new Date().toTimeString().slice(0, 8);
  }
  sayWhatIs();
}

/* What somebody has opened stays open. */
const beforeAttributeUpdated = (name, node) => !(name === "open" && node.tagName === "DETAILS");

function change(html) {
  if (paused || html === shown) return;
  shown = html;
  const page = new DOMParser().parseFromString(html, "text/html");
  document.title = page.title;
  const newer = page.getElementById("live");
  const followed = part().dataset.topics;
  const ticked = [...part().querySelectorAll("input.tick:checked")].map((box) => box.id);
  if (newer) Idiomorph.morph(part(), newer, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks: { beforeNodeMorphed: mayChange, beforeAttributeUpdated } });
  for (const id of ticked) {
    const box = document.getElementById(id);
    if (box) box.checked = true;
  }
  if (newer && newer.dataset.topics !== followed) connect();
}

/* What a person fills in or opens, and what another script keeps up, stays as it is. */
const mayChange = (old) => !(old instanceof Element && old.matches("[data-still]"));

function connect() {
  disconnect();
  if (paused || document.hidden || !part()) return;
  const url = `${document.body.dataset.stream}?topics=${encodeURIComponent(part().dataset.topics)}`;
  stream = new EventSource(url);
  stream.onopen = () => {
    if (failures) refresh();
    failures = 0;
    clearInterval(poll);
    poll = 0;
    sayWhatIs();
  };
  stream.addEventListener("moved", refresh);
  stream.addEventListener("again", connect);
  stream.onerror = () => {
    disconnect();
    failures += 1;
    const backoff = Math.min(MOST_BACKOFF_MS, 1000 * 2 ** (failures - 1));
    retry = setTimeout(connect, backoff * (0.75 + Math.random() / 2));
    poll ||= setInterval(refresh, POLL_MS);
    refresh();
    sayWhatIs();
  };
}

function disconnect() {
  clearTimeout(retry);
  stream?.close();
  stream = null;
}

function stop() {
  disconnect();
  clearInterval(poll);
  poll = 0;
}

export function togglePause() {
  if (!part()) return;
  paused = !paused;
  if (paused) stop();
  else {
    connect();
    refresh();
  }
  sayWhatIs();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return stop();
  connect();
  refresh();
});
addEventListener("beforeunload", () => (leftAt = performance.now()));
addEventListener("pagehide", stop);
addEventListener("pageshow", (event) => event.persisted && connect());
button?.addEventListener("click", togglePause);
if (part()) connect();
else if (button) say("still");

/* --- Times that count down between two answers: data-left has the seconds that were left in the last one. */

const since = new WeakMap();

function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const [size, unit, smaller, rest] = whole < 3600 ? [60, "min", 1, "s"] : [3600, "h", 60, "min"];
  const more = Math.floor((whole % size) / smaller);
  return `${Math.floor(whole / size)} ${unit}${more ? ` ${more} ${rest}` : ""}`;
}

function tick() {
  for (const each of document.querySelectorAll("[data-left]")) {
    const { left } = each.dataset;
    if (since.get(each)?.left !== left) since.set(each, { left, at: performance.now() });
    each.textContent = span(left - (performance.now() - since.get(each).at) / 1000);
  }
}

setInterval(() => document.hidden || tick(), 1000);

/* --- What an execution prints while it runs: asked for once a second, shown as text. */

const OUTPUT_MS = 1_000;
const MOST_CHARACTERS = 200_000;

const pane = document.querySelector("[data-output]");

function append(text) {
  const isAtEnd = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 40;
  const all = pane.textContent + text;
  if (all.length > MOST_CHARACTERS) pane.textContent = all.slice(-MOST_CHARACTERS);
  else pane.append(text);
  if (isAtEnd) pane.scrollTop = pane.scrollHeight;
}

async function look() {
  if (!paused && !document.hidden) {
    const response = await fetch(`${pane.dataset.output}&place=${pane.dataset.place}`, { cache: "no-store" }).catch(() => null);
    if (response?.ok) {
      const { text, place, is_over } = await response.json();
      pane.dataset.place = place;
      if (text) append(text);
      if (is_over) {
        document.getElementById("output-state").textContent = "It has ended.";
        return;
      }
    }
  }
  setTimeout(look, OUTPUT_MS);
}

if (pane) {
  pane.scrollTop = pane.scrollHeight;
  if (pane.dataset.place) setTimeout(look, OUTPUT_MS);
}
