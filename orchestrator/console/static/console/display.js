/* Time zone and density: cookies, which the server reads; every time on a page is right as it comes. */

import { refresh } from "./live.js";

const OF_BROWSER = "browser~";
const zone = document.getElementById("display-zone");
const density = document.getElementById("display-density");

export function keep(name, value) {
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
