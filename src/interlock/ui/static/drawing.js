// The machine's drawing: how many workflows are in each state, or the path that one of them has taken.
//
// The server draws it as an SVG document. Here it is copied element by element, only what a drawing needs: its own style
// element would be refused by the Content-Security-Policy (diagram.css has the same rules), and anything else has no
// business on this page.

import { svg as make } from "./dom.js";
import { link } from "./parts.js";
import { number, several } from "./time.js";

const ELEMENTS = new Set(["svg", "g", "path", "rect", "circle", "text", "tspan", "title"]);
const ATTRIBUTES = new Set("class d x y dx width height rx cx cy r viewBox transform aria-label data-state data-from data-to".split(" "));
const BADGE_HEIGHT = 20;
const DIGIT_WIDTH = 7.5;
const ARROW_ROOM = 8;

// The page forbids markup made from text; this one place may parse, since nothing but the copy below comes out of it.
const pass = { createHTML: (text) => text };
const policy = globalThis.trustedTypes?.createPolicy("interlock-diagram", pass) ?? pass;

/**
 * The drawing, or null when the server sent none that can be read. `chosen` is the state that the page is about; `path`
 * the moves of a workflow ({from_state, to_state}), which are then drawn stronger than the rest.
 */
export function drawing(machine, { chosen, path } = {}) {
  const drawn = machine.diagram?.svg;
  if (typeof drawn !== "string") return null;
  // Without its style element, which the browser would already refuse, and report, while it parses.
  const text = drawn.replace(/<style>[^<]*<\/style>/, "");
  const parsed = new DOMParser().parseFromString(policy.createHTML(text), "image/svg+xml");
  if (parsed.documentElement.localName !== "svg") return null;
  const root = copy(parsed.documentElement);
  // Both palettes: which of them holds is said by the theme of the page.
  root.setAttribute("class", "drawing interlock-light interlock-dark");
  root.setAttribute("role", "group");
  for (const box of root.querySelectorAll("g[data-state]")) {
    const name = box.dataset.state;
    box.replaceWith(linked(box, machine, name, name === chosen));
  }
  if (path) markPath(root, path);
  return root;
}

/** Mark the states and arrows of a path. A move whose own arrow is not drawn goes by the arrow from any state. */
function markPath(root, path) {
  root.classList.add("pathed");
  const moves = new Set(path.map((row) => JSON.stringify([row.from_state, row.to_state])));
  const visited = new Set(path.map((row) => row.to_state));
  for (const box of root.querySelectorAll("a.state")) {
    if (visited.has(box.dataset.name)) box.classList.add("visited");
  }
  const arrows = [...root.querySelectorAll("g[data-to]")];
  const own = arrows.filter((arrow) => moves.delete(JSON.stringify([arrow.dataset.from, arrow.dataset.to])));
  const targets = new Set(
    [...moves]
      .map((move) => JSON.parse(move))
      .filter(([from, to]) => from !== to)
      .map(([, to]) => to),
  );
  const gathered = arrows.filter((arrow) => arrow.dataset.from === undefined && targets.has(arrow.dataset.to));
  for (const arrow of [...own, ...gathered]) arrow.classList.add("taken");
}

function copy(node) {
  if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
  if (node.nodeType !== Node.ELEMENT_NODE || !ELEMENTS.has(node.localName)) return null;
  const made = make(node.localName);
  for (const { name, value } of node.attributes) {
    if (ATTRIBUTES.has(name)) made.setAttribute(name, value);
  }
  for (const child of node.childNodes) {
    const copied = copy(child);
    if (copied) made.append(copied);
  }
  return made;
}

/** A link to the workflows in a state around a copy of its box, with their count on its corner. */
function linked(box, machine, name, chosen) {
  const count = machine.counts?.[name];
  const anchor = make("a", {
    href: link.machine(machine.name, { state: name }),
    class: chosen ? "state chosen" : "state",
    "data-name": name,
    "aria-label": count === undefined ? name : `${name}: ${several(count, "workflow")}`,
  });
  anchor.append(box.cloneNode(true));
  if (count !== undefined) anchor.append(badge(box.querySelector(".box"), count));
  return anchor;
}

function badge(rect, count) {
  const at = (name) => Number(rect.getAttribute(name));
  const text = number(count);
  const width = Math.max(BADGE_HEIGHT, text.length * DIGIT_WIDTH + 12);
  // On the corner; a wide one reaches beyond it, so that the arrow into the middle of the box stays to be seen.
  const x = Math.max(at("x") + at("width") - width + 8, at("x") + at("width") / 2 + ARROW_ROOM);
  const y = at("y") - BADGE_HEIGHT / 2;
  const group = make("g", { class: count ? "count" : "count none" });
  const label = make("text", { x: x + width / 2, y: y + 14 });
  label.textContent = text;
  group.append(make("rect", { x, y, width, height: BADGE_HEIGHT, rx: BADGE_HEIGHT / 2 }), label);
  return group;
}
