// Elements are made here and nowhere else. Whatever users wrote becomes a text node or an attribute's value, never markup.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onsubmit", "onchange"];
// What the reader has changed in an element, and a fresh copy must not change back.
const KEPT = { DETAILS: ["open"], INPUT: ["value"], TEXTAREA: ["value"] };

/** An element with attributes, handlers (`onclick`) and children: nodes, texts, numbers, lists of them, or nothing. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for an element of a drawing. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false || (value === "" && key === "class")) continue;
    if (HANDLERS.includes(key)) node[key] = value;
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...nodes(children));
  return node;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(unturned(String(child)))));
}

/** Show characters that change the direction of the following text by their number: the page shows what is stored. */
function unturned(text) {
  return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, (found) => `\\u${found.codePointAt(0).toString(16)}`);
}

/**
 * Make `parent` hold these children, changing only what differs: a page that refreshes itself each second must not
 * take away the focus, the selection, the scroll position or an opened detail. Children are matched by `data-key`. What
 * is inside an element with `data-own` belongs to the reader, for example a form: it stays until its key changes.
 */
export function show(parent, ...children) {
  const wanted = parent.cloneNode(false);
  wanted.append(...nodes(children));
  matchChildren(parent, wanted);
}

function matchChildren(old, wanted) {
  const coming = new Set([...wanted.children].map(keyOf));
  const keyed = new Map();
  for (const child of [...old.children]) {
    const key = keyOf(child);
    if (key === undefined) continue;
    if (coming.has(key)) keyed.set(key, child);
    else child.remove();
  }
  let at = old.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = keyOf(next);
    const known = key === undefined ? at : keyed.get(key);
    if (!known || !alike(known, next)) {
      old.insertBefore(next, at);
    } else {
      if (known === at) at = at.nextSibling;
      else old.insertBefore(known, at);
      match(known, next);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function keyOf(node) {
  return node.dataset?.key;
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
}

function match(old, wanted) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  const kept = KEPT[old.nodeName] ?? [];
  for (const { name } of [...old.attributes]) {
    if (!wanted.hasAttribute(name) && !kept.includes(name)) old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (old.getAttribute(name) !== value && !kept.includes(name)) old.setAttribute(name, value);
  }
  if (wanted.dataset?.own !== undefined) return;
  for (const handler of HANDLERS) old[handler] = wanted[handler];
  matchChildren(old, wanted);
}
