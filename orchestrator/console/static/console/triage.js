/* Triage by keys: what has the focus, or else what the page is about, is opened, closed, annotated. */

import { open } from "./dialogs.js";
import { KEYS } from "./keys.js";

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
