/* Dialogs open by a button that names them, or by the address: #drain. */

export function open(id) {
  const dialog = document.getElementById(id);
  if (!(dialog instanceof HTMLDialogElement) || dialog.open) return;
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
  if (opener && document.getElementById(opener.dataset.opens)) open(opener.dataset.opens);
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
