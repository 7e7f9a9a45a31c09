// The keyboard: `/` for the search, `g` and a letter for a page, `j` and `k` for rows, `?` for this list.

import { el } from "./dom.js";
import { tell } from "./forms.js";

const CHORD_MS = 1_500;
const LINES = [
  ["/", "search for a workflow by its id or a value"],
  ["j, k", "next and previous row"],
  ["Enter", "open the row"],
  ["Esc", "close a dialog, leave a field"],
  ["?", "this list"],
];

let chord = 0;

/** Listen for keys. `pages` are [letter, address, name]. */
export function listenForKeys(pages) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (act(event.key, pages)) event.preventDefault();
  });
}

function act(key, pages) {
  if (Date.now() - chord < CHORD_MS) {
    chord = 0;
    const page = pages.find(([letter]) => letter === key);
    if (page) location.hash = page[1];
    return page !== undefined;
  }
  if (key === "g") chord = Date.now();
  else if (key === "/") document.getElementById("open-id").focus();
  else if (key === "?") help(pages);
  else if (key === "j" || key === "k") walk(key === "j" ? 1 : -1);
  else return false;
  return true;
}

/** The focus goes to the first link of the next row: Enter then opens it, as any link. */
function walk(step) {
  const rows = [...document.querySelectorAll("main tbody tr, main .timeline > li")].filter((row) =>
    row.querySelector("a, button, summary"),
  );
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  next.querySelector("a.id, a, button, summary").focus();
  next.scrollIntoView({ block: "nearest" });
}

export function help(pages) {
  const lines = [...LINES, ...pages.map(([letter, , name]) => [`g ${letter}`, name])];
  return tell(
    "Keyboard",
    el(
      "dl",
      { class: "keys" },
      lines.map(([keys, text]) => el("div", {}, el("dt", {}, el("kbd", {}, keys)), el("dd", {}, text))),
    ),
  );
}
