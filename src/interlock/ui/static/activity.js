// What happens, as lines of text: the signals of the stream, and before them the workflows that moved last.

import { at, call } from "./api.js";
import { el } from "./dom.js";
import { live } from "./live.js";
import { workflowLink } from "./parts.js";
import { now } from "./time.js";

const KEPT = 40;
const WINDOW_MS = 10_000;
const TIMES_MAX = 100_000;
const MOVES_READ = 12;

const kept = [];
let times = [];
let count = 0;
let filled = null;

live.addEventListener("signal", ({ detail: { type, data } }) => {
  // What is not listed here is still a reason to look again, as "reset": something was missed.
  if (data === null || !isWorthTelling(type, data)) return;
  const at = now();
  count += 1;
  kept.unshift({ at, type, data, number: count });
  kept.length = Math.min(kept.length, KEPT);
  if (type === "transition_applied" && times.length < TIMES_MAX) times.push(at);
});

/** The latest signals, and below them the moves from before the page was opened. */
export function recent() {
  const seen = new Set(kept.map(({ data }) => `${data.workflow} ${data.version}`));
  const before = (filled ?? []).filter(({ data }) => !seen.has(`${data.workflow} ${data.version}`));
  return [...kept, ...before].slice(0, KEPT);
}

/** Read the last moves of the machines that can be sorted by time, once: after that the stream tells. */
export async function fillActivity(machines, signal) {
  if (filled !== null) return;
  const searched = machines.filter((each) => each.search);
  const pages = await Promise.all(
    searched.map(({ name }) => call("v1/workflows", { query: { machine: name, order: "-updated_at", limit: MOVES_READ }, signal })),
  );
  const newest = pages
    .flatMap(({ items }) => items)
    .toSorted((one, other) => Date.parse(other.updated_at) - Date.parse(one.updated_at))
    .slice(0, MOVES_READ);
  const rows = await Promise.all(newest.map((each) => lastMove(each, signal)));
  filled = rows.filter(Boolean);
}

async function lastMove({ id, machine, version }, signal) {
  try {
    const { items } = await call(at`v1/workflows/${id}/history`, { query: { cursor: version - 1, limit: 1 }, signal });
    const [row] = items;
    if (!row) return null;
    const data = {
      workflow: id,
      machine,
      version: row.version,
      event: row.event,
      from_state: row.from_state,
      to_state: row.to_state,
      by: row.by,
    };
    return { at: Date.parse(row.created_at), type: "transition_applied", data, number: `${id} ${row.version}` };
  } catch (error) {
    if (error.status === 404) return null; // It was pruned meanwhile.
    throw error;
  }
}

/** Another key may see other workflows. */
export function forgetActivity() {
  filled = null;
  kept.length = 0;
}

/** Transitions per second over the last ten seconds, or null while the stream is not connected. */
export function rate() {
  if (live.status !== "live") return null;
  const begin = now() - WINDOW_MS;
  times = times.filter((time) => time >= begin);
  return times.length / (WINDOW_MS / 1000);
}

const WORDS = {
  transition_applied: ({ workflow, event, from_state: from, to_state: to }) => [
    about(workflow, event),
    soft(from === to ? `in ${to}` : `${from} → ${to}`),
  ],
  transition_rejected: ({ workflow, event, state, guard, code }) => [about(workflow, event), soft(`refused in ${state}: ${guard ?? code}`)],
  step_attempted: ({ workflow, kind, step, outcome, attempt, error }) => {
    const ended = outcome.replace("_", "-");
    const why = error && error !== ended ? `: ${error}` : "";
    return [about(workflow, `${kind} ${step}`), soft(`attempt ${attempt} ended ${ended}${why}`)];
  },
  breaker_changed: ({ dependency, before, after, reason }) => [
    el("a", { href: "#/breakers" }, `breaker of ${dependency}`),
    soft(` ${before} → ${after}: ${reason}`.replaceAll("_", " ")),
  ],
  alert_raised: ({ summary, resolved }) => [
    el("span", { class: `chip ${resolved ? "good" : "bad"}` }, resolved ? "over" : "alert"),
    soft(` ${summary}`),
  ],
};

/** A successful attempt is shown by its transition; a late result changed nothing. */
export function isWorthTelling(type, data) {
  return Object.hasOwn(WORDS, type) && !(type === "step_attempted" && data.outcome === "done");
}

export function happening(type, data) {
  return WORDS[type](data);
}

function about(workflow, what) {
  return [workflowLink(workflow), " ", el("span", { class: "wire" }, what), " "];
}

function soft(text) {
  return el("span", { class: "soft" }, text);
}
