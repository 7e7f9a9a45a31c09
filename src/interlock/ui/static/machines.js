// The machines of the server: what they are, and how many workflows are in each state.
//
// What a machine is does not change while a page is looked at. Counting looks at every workflow there is: the server
// counts for all pages together, and a page keeps a count for a moment, so that a slow one is not asked for all the time.

import { all, at, call } from "./api.js";
import { live } from "./live.js";

const KEPT_MS = 1_000;
const KEPT_MS_MAX = 5_000;
const KEPT_SHARE = 2;

let described = null;
const counted = new Map();

/** Every machine by its name, without counts. */
export async function machines(signal) {
  if (described === null) {
    const { items } = await all("v1/machines", { signal });
    described = new Map(items.map((each) => [each.name, each]));
  }
  return described;
}

/** One machine with its drawing and the number of workflows in each state. */
export async function machine(name, signal) {
  const known = counted.get(name);
  if (known && Date.now() < known.until) {
    lookLater(known);
    return known.told;
  }
  const began = Date.now();
  const told = await call(at`v1/machines/${name}`, { query: { counts: true }, signal });
  const took = Date.now() - began;
  counted.set(name, { told, until: Date.now() + Math.min(KEPT_MS_MAX, Math.max(KEPT_MS, KEPT_SHARE * took)) });
  return told;
}

let drawn = null;

/** One machine with its drawing, which does not change either; without counts. */
export async function drawnMachine(name, signal) {
  if (drawn?.name !== name) drawn = await call(at`v1/machines/${name}`, { signal });
  return drawn;
}

/** What has happened since the count is seen as soon as it may be counted again. */
function lookLater(known) {
  if (known.timer) return;
  known.timer = setTimeout(() => live.dispatchEvent(new Event("look")), known.until - Date.now());
}

/** Another key may see other machines. */
export function forgetMachines() {
  described = null;
  drawn = null;
  counted.clear();
}
