/* What an execution prints while it runs: asked for once a second, shown as text. */

import { isPaused } from "./live.js";

const EVERY_MS = 1_000;
const MOST_CHARACTERS = 200_000;

const pane = document.querySelector("[data-output]");

function add(text) {
  const isAtEnd = pane.scrollHeight - pane.scrollTop - pane.clientHeight < 40;
  const all = pane.textContent + text;
  if (all.length > MOST_CHARACTERS) pane.textContent = all.slice(-MOST_CHARACTERS);
  else pane.append(text);
  if (isAtEnd) pane.scrollTop = pane.scrollHeight;
}

async function look() {
  if (!isPaused() && !document.hidden) {
    const response = await fetch(`${pane.dataset.output}&place=${pane.dataset.place}`, { cache: "no-store" }).catch(() => null);
    if (response?.ok) {
      const { text, place, is_over } = await response.json();
      pane.dataset.place = place;
      if (text) add(text);
      if (is_over) {
        document.getElementById("output-state").textContent = "It has ended.";
        return;
      }
    }
  }
  setTimeout(look, EVERY_MS);
}

if (pane) {
  pane.scrollTop = pane.scrollHeight;
  if (pane.dataset.place) setTimeout(look, EVERY_MS);
}
