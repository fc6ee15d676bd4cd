/* Pictures with links: arrow keys go to the nearest one in their direction. And results that are typed as
   JSON: a mistake is said before they are sent, and what the server refused is not lost. */

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

const kept = (field) => `typed ${field.form.getAttribute("action")}`;

function check(field) {
  try {
    JSON.parse(field.value);
    field.setCustomValidity("");
  } catch (error) {
    field.setCustomValidity(`This is not JSON: ${error.message}`);
  }
}

for (const field of document.querySelectorAll("[data-json]")) {
  const typed = sessionStorage.getItem(kept(field));
  sessionStorage.removeItem(kept(field));
  if (typed && document.querySelector(".toasts .error")) field.value = typed;
  field.addEventListener("input", () => check(field));
  field.form.addEventListener("submit", () => sessionStorage.setItem(kept(field), field.value));
}
