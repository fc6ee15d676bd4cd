/* The palette: what is typed is looked for by the server; the focus stays in the field. */

const dialog = document.getElementById("palette");
const field = dialog.querySelector("input");
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

function go(line) {
  if (!line) return;
  dialog.close();
  location.assign(line.dataset.url);
}

field.addEventListener("input", () => (looking = look()));
field.addEventListener("keydown", async (event) => {
  if (event.key === "ArrowDown") choose(chosen + 1);
  else if (event.key === "ArrowUp") choose(chosen - 1);
  else if (event.key === "Enter") {
    // what was typed quickly may not have been looked for, or found, yet
    await (lookedFor === field.value ? looking : look());
    return go(list.children[chosen]);
  } else return;
  event.preventDefault();
});
list.addEventListener("click", (event) => go(event.target.closest("[role=option]")));
dialog.addEventListener("opened", () => {
  field.select();
  looking = look();
});
