/* What a person fills in: a search, the form of a run, results that are typed as JSON. */

/* --- Completion of a search: what may follow is asked of the server; the focus stays in the field. */

const field = document.querySelector("[data-completes]");
const list = field && document.getElementById(field.getAttribute("aria-controls"));
let items = [];
let asked = 0;
let chosen = -1;

/* The server counts characters, JavaScript halves of some of them. */
const characters = () => [...field.value];
const caret = () => [...field.value.slice(0, field.selectionStart)].length;

async function look() {
  const number = ++asked;
  const query = new URLSearchParams({ q: field.value, at: caret() });
  const response = await fetch(`${field.dataset.completes}?${query}`);
  if (!response.ok || number !== asked) return;
  ({ items } = await response.json());
  if (items.length === 1 && characters().slice(items[0].start, items[0].end).join("") === items[0].text) items = [];
  list.replaceChildren(...items.map(option));
  show(items.length > 0);
  choose(-1);
}

function option({ text, about }, number) {
  const line = document.createElement("li");
  line.id = `q-${number}`;
  line.setAttribute("role", "option");
  const more = document.createElement("span");
  more.className = "quiet";
  more.textContent = about;
  line.append(text, " ", more);
  return line;
}

function show(isOpen) {
  list.hidden = !isOpen;
  field.setAttribute("aria-expanded", String(isOpen));
}

function close() {
  asked += 1; // an answer that is under way comes too late
  show(false);
  choose(-1);
}

function choose(number) {
  const lines = [...list.children];
  chosen = Math.max(-1, Math.min(number, lines.length - 1));
  lines.forEach((line, at) => line.setAttribute("aria-selected", String(at === chosen)));
  if (chosen < 0) field.removeAttribute("aria-activedescendant");
  else {
    field.setAttribute("aria-activedescendant", lines[chosen].id);
    lines[chosen].scrollIntoView({ block: "nearest" });
  }
}

function take({ text, start, end }) {
  const all = characters();
  const put = /[:.]$/.test(text) ? text : `${text} `;
  const before = all.slice(0, start).join("") + put;
  // what was typed since the answer belongs to the word, too
  field.value = before + all.slice(Math.max(end, caret())).join("").trimStart();
  field.setSelectionRange(before.length, before.length);
  field.focus();
  look();
}

field?.addEventListener("input", look);
field?.addEventListener("blur", close);
field?.addEventListener("keydown", (event) => {
  const isOpen = !list.hidden;
  if (event.key === "ArrowDown") isOpen ? choose(chosen + 1) : look();
  else if (event.key === "ArrowUp" && isOpen) choose(chosen - 1);
  else if (event.key === "Enter" && isOpen && chosen >= 0) take(items[chosen]);
  else if (event.key === "Escape" && isOpen) close();
  else return;
  event.preventDefault();
});
list?.addEventListener("mousedown", (event) => {
  event.preventDefault(); // the focus stays in the field
  const line = event.target.closest("[role=option]");
  if (line) take(items[[...list.children].indexOf(line)]);
});

/* --- The command and the curl that do the same, kept up while the form is filled in. */

const WAIT_MS = 500;
const form = document.getElementById("run-form");
let previewDue = 0;
let previews = 0;

async function preview() {
  const number = ++previews;
  const content = new FormData(form);
  content.set("preview", "yes");
  const response = await fetch(location.href, { method: "POST", body: content, headers: { "X-Live": "1" } }).catch(() => null);
  if (!response?.ok || number !== previews) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  document.getElementById("commands").replaceWith(page.getElementById("commands"));
}

form?.addEventListener("input", () => {
  clearTimeout(previewDue);
  previewDue = setTimeout(preview, WAIT_MS);
});

/* --- Results that are typed as JSON: a mistake is said before they are sent, and what the server refused is not lost. */

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
