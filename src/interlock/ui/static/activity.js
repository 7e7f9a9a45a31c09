// The last signals of the stream, and how many transitions there are per second.

import { isWorthTelling } from "./happening.js";
import { live } from "./live.js";
import { now } from "./time.js";

const KEPT = 40;
const WINDOW_MS = 10_000;
const TIMES_MAX = 100_000;

const kept = [];
let times = [];
let count = 0;

live.addEventListener("signal", ({ detail: { type, data } }) => {
  // What is not listed here is still a reason to look again, as "reset": something was missed.
  if (data === null || !isWorthTelling(type, data)) return;
  const at = now();
  count += 1;
  kept.unshift({ at, type, data, number: count });
  kept.length = Math.min(kept.length, KEPT);
  if (type === "transition_applied" && times.length < TIMES_MAX) times.push(at);
});

export function recent() {
  return kept;
}

/** Transitions per second over the last ten seconds, or null while the stream is not connected. */
export function rate() {
  if (live.status !== "live") return null;
  const begin = now() - WINDOW_MS;
  times = times.filter((time) => time >= begin);
  return times.length / (WINDOW_MS / 1000);
}
