/* Counts down between two answers of the server: data-left has the seconds that were left in the last one. */

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
