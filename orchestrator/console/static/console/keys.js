/* Single keys: none acts while somebody types, or in a dialog, or where they are turned off. */

import { open } from "./dialogs.js";
import { keep } from "./display.js";
import { togglePause } from "./live.js";

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

export const KEYS = {
  "/": () => open("palette"),
  "?": () => open("keys"),
  j: () => step(1),
  k: () => step(-1),
  p: togglePause,
  t: nextTheme,
};

const isTyping = (target) => target.matches("input, select, textarea") || document.querySelector("dialog[open]");

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
