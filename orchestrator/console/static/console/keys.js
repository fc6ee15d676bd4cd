/* What a person presses: dialogs, the look of pages, single keys, the palette, arrows in pictures. */

import { refresh, togglePause } from "./live.js";

/* --- Dialogs open by a button that names them, or by the address: #drain. */

function open(id, picked) {
  const dialog = document.getElementById(id);
  if (!(dialog instanceof HTMLDialogElement) || dialog.open) return;
  // one dialog for many rows: each one's button says which it is about
  if (picked !== undefined) dialog.querySelector("select").value = picked;
  dialog.showModal();
  dialog.querySelector("input:not([type=hidden]), textarea")?.focus();
  dialog.dispatchEvent(new Event("opened"));
}

function openByAddress() {
  const id = location.hash.slice(1);
  if (!(document.getElementById(id) instanceof HTMLDialogElement)) return;
  // a browser that has loaded a page goes to what its address names, which would take the focus; and
  // the same order can be begun again from the palette
  history.replaceState(null, "", location.pathname + location.search);
  open(id);
}

document.addEventListener("click", (event) => {
  const target = event.target;
  if (!(target instanceof Element)) return;
  const opener = target.closest("[data-opens]");
  if (opener && document.getElementById(opener.dataset.opens)) open(opener.dataset.opens, opener.dataset.picks);
  else if (opener) {
    // an act that came after the page did, whose dialogs do not move: the page brings it
    location.hash = opener.dataset.opens;
    location.reload();
  }
  if (target.closest("[data-closes]") || target.matches("dialog")) target.closest("dialog").close();
});
addEventListener("hashchange", openByAddress);
// once it is loaded: the browser goes to the place that the address names, which takes the focus away
if (document.readyState === "complete") openByAddress();
else addEventListener("load", openByAddress);

/* --- Time zone, density, theme: cookies, which the server reads; every time on a page is right as it comes. */

const OF_BROWSER = "browser~";
const zone = document.getElementById("display-zone");
const density = document.getElementById("display-density");

function keep(name, value) {
  document.cookie = `${name}=${value}; path=/console; max-age=31536000; SameSite=Lax`;
}

function ofBrowser() {
  return OF_BROWSER + Intl.DateTimeFormat().resolvedOptions().timeZone;
}

function chooseZone() {
  keep("zone", zone.value === "browser" ? ofBrowser() : zone.value);
  const button = document.querySelector(".zone");
  const chosen = zone.value === "browser" ? ofBrowser().slice(OF_BROWSER.length) : zone.value;
  button.textContent = chosen || zone.options[0].text.split(": ").pop();
  button.setAttribute("aria-label", `Time zone and density: ${button.textContent}`);
  refresh();
}

zone.addEventListener("change", chooseZone);
density.addEventListener("change", () => {
  keep("density", density.value);
  if (density.value) document.documentElement.dataset.density = density.value;
  else delete document.documentElement.dataset.density;
});
// who travels has another zone than last time
if (zone.value === "browser" && !document.cookie.split("; ").includes(`zone=${ofBrowser()}`)) chooseZone();

/* --- Single keys: none acts while somebody types, or in a dialog, or where they are turned off. */

const SECOND_KEY_MS = 1_500;
const THEMES = ["", "dark", "light"];

const setting = document.getElementById("keys-on");
setting.checked = localStorage.getItem("keys") !== "off";
setting.addEventListener("change", () => localStorage.setItem("keys", setting.checked ? "on" : "off"));

let waitsForPage = 0;

function go(key) {
  const links = document.querySelectorAll("nav.side a[data-key]");
  [...links].find((link) => link.dataset.key === key)?.click();
}

function nextTheme() {
  const root = document.documentElement;
  const theme = THEMES[(THEMES.indexOf(root.dataset.theme ?? "") + 1) % THEMES.length];
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  keep("theme", theme);
}

function step(by) {
  const links = [...document.querySelectorAll("[data-rows] tbody tr a")];
  const here = links.indexOf(document.activeElement);
  const next = here < 0 ? (by > 0 ? 0 : links.length - 1) : here + by;
  links[next]?.focus();
}

const KEYS = {
  "/": () => open("palette"),
  "?": () => open("keys"),
  j: () => step(1),
  k: () => step(-1),
  p: togglePause,
  t: nextTheme,
};

/* The field of a dialog that has just been closed keeps the focus until the page is drawn again. */
const isField = (target) => target.matches("input, select, textarea") && !target.closest("dialog:not([open])");
const isTyping = (target) => isField(target) || document.querySelector("dialog[open]");

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    open("palette");
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || !setting.checked || isTyping(event.target)) return;
  if (Date.now() < waitsForPage) {
    waitsForPage = 0;
    go(event.key);
  } else if (event.key === "g") {
    waitsForPage = Date.now() + SECOND_KEY_MS;
  } else if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
});
document.getElementById("theme").addEventListener("click", nextTheme);

/* --- Triage by keys: what has the focus, or else what the page is about, is opened, closed, annotated. */

const focusedRow = () => document.activeElement?.closest("[data-rows] tbody tr")?.querySelector("a");

/* The dialog of a row is on the page that the row leads to. */
function ask(id) {
  const link = focusedRow();
  if (link) location.assign(`${link.pathname}#${id}`);
  else open(id);
}

if (document.querySelector("[data-triage]")) {
  KEYS.o = () => focusedRow()?.click();
  KEYS.x = () => ask("close");
  KEYS.n = () => ask("note");
}

/* --- The palette: what is typed is looked for by the server; the focus stays in the field. */

const palette = document.getElementById("palette");
const field = palette.querySelector("input");
const list = document.getElementById("found");
let lookedFor = null;
let looking = null;
let asked = 0;
let chosen = 0;

async function look() {
  const number = ++asked;
  lookedFor = field.value;
  const response = await fetch(`${document.body.dataset.palette}?q=${encodeURIComponent(field.value)}`);
  if (!response.ok || number !== asked) return;
  const { items } = await response.json();
  list.replaceChildren(...items.map(option));
  choose(0);
}

function option({ text, hint, url }, number) {
  const line = document.createElement("li");
  line.id = `found-${number}`;
  line.setAttribute("role", "option");
  line.dataset.url = url;
  const more = document.createElement("span");
  more.className = "quiet";
  more.textContent = hint;
  line.append(text, " ", more);
  return line;
}

function choose(number) {
  const lines = [...list.children];
  chosen = Math.max(0, Math.min(number, lines.length - 1));
  lines.forEach((line, at) => line.setAttribute("aria-selected", String(at === chosen)));
  field.setAttribute("aria-activedescendant", lines[chosen]?.id ?? "");
}

function follow(line) {
  if (!line) return;
  palette.close();
  location.assign(line.dataset.url);
}

field.addEventListener("input", () => (looking = look()));
field.addEventListener("keydown", async (event) => {
  if (event.key === "ArrowDown") choose(chosen + 1);
  else if (event.key === "ArrowUp") choose(chosen - 1);
  else if (event.key === "Enter") {
    // what was typed quickly may not have been looked for, or found, yet
    await (lookedFor === field.value ? looking : look());
    return follow(list.children[chosen]);
  } else return;
  event.preventDefault();
});
list.addEventListener("click", (event) => follow(event.target.closest("[role=option]")));
palette.addEventListener("opened", () => {
  field.select();
  looking = look();
});

/* --- Pictures with links: arrow keys go to the nearest one in their direction. */

const WAYS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
const ASIDE = 3;

function middle(link) {
  const { left, top, width, height } = link.getBoundingClientRect();
  return [left + width / 2, top + height / 2];
}

/* The nearest link that way; what lies aside counts as further away. */
function nearest(links, from, [right, down]) {
  const [x, y] = middle(from);
  const far = (link) => {
    const [toX, toY] = middle(link);
    const along = (toX - x) * right + (toY - y) * down;
    const aside = Math.abs((toX - x) * down) + Math.abs((toY - y) * right);
    return along > 1 ? along + ASIDE * aside : Infinity;
  };
  const next = links.filter((link) => link !== from).sort((a, b) => far(a) - far(b))[0];
  return next && far(next) < Infinity ? next : null;
}

document.addEventListener("keydown", (event) => {
  const way = WAYS[event.key];
  const box = event.target.closest?.("[data-walk]");
  if (!way || !box || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  const here = event.target.closest("svg a");
  const links = [...box.querySelectorAll("svg a")];
  const next = here ? nearest(links, here, way) : null;
  if (!next) return;
  event.preventDefault();
  next.focus();
  next.scrollIntoView({ block: "nearest", inline: "nearest" });
});
