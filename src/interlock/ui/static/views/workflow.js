// One workflow: its state, its context, the allowed events and its history.

import { all, at, call } from "../api.js";
import { ask } from "../ask.js";
import { el } from "../dom.js";
import { machines } from "../machines.js";
import { heading, json, link, lookOf, machineLink, stateChip, table, workflowLink } from "../parts.js";
import { duration, moment, number, several } from "../time.js";

const HISTORY_PAGE = 1_000;
const DRAWN_MAX = 300;
const CHILDREN_DRAWN = 100;

let kept = null; // The history of the workflow that was looked at last: it grows only with the version.

export const title = ({ id }) => `Workflow ${id}`;

export async function load({ id }, signal) {
  const view = await call(at`v1/workflows/${id}`, { signal });
  if (kept?.id !== id || kept.version !== view.version) {
    const [history, allowed, past] = await Promise.all([
      all(at`v1/workflows/${id}/history`, { query: { limit: HISTORY_PAGE }, signal }),
      all(at`v1/workflows/${id}/allowed`, { signal }),
      all(at`v1/workflows/${id}/attempts`, { query: { limit: HISTORY_PAGE }, signal }),
    ]);
    kept = { id, version: view.version, history, allowed, past };
  }
  // Children move, and attempts begin and end, without a new version.
  const [children, present, why] = await Promise.all([
    call(at`v1/workflows/${id}/children`, { query: { limit: CHILDREN_DRAWN }, signal }),
    call(at`v1/workflows/${id}/attempts`, { query: { after: view.version, limit: HISTORY_PAGE }, signal }),
    call(at`v1/workflows/${id}/why`, { signal }),
  ]);
  const known = await machines(signal);
  return { ...kept, view, children, present, why, known, machine: known.get(view.machine) };
}

export function draw({ view, history, allowed, machine, children, known, past, present, why }, _, again) {
  return [
    heading(
      view.id,
      stateChip(machine, view.state),
      view.paused && el("span", { class: "chip warn" }, "paused"),
      pauseButtons(view, again),
    ),
    view.waiting && el("p", { class: "waiting" }, view.waiting),
    el("p", { class: "why" }, why.text),
    el(
      "dl",
      { class: "facts" },
      fact("Machine", machineLink(view.machine)),
      fact("Version", number(view.version)),
      fact("Created", moment(view.created_at)),
      fact("Updated", moment(view.updated_at)),
      ...(view.timers ?? []).map((timer) => fact(`${timer.event} is due`, moment(timer.due_at))),
    ),
    el(
      "div",
      { class: "columns" },
      el("section", { class: "card" }, el("h2", {}, "Timeline"), timeline(history, machine, view.id)),
      el(
        "div",
        {},
        (view.parent || children.items.length > 0) && el("section", { class: "card" }, el("h2", {}, "Family"), family(view, children, machine, known)),
        el("section", { class: "card" }, el("h2", {}, "Context"), json(view.context)),
        el("section", { class: "card" }, el("h2", {}, "Allowed now"), possible(allowed, machine)),
      ),
    ),
    el("section", { class: "card" }, el("h2", {}, "Attempts"), attempts(past, present)),
  ];
}

/** The tree around the workflow: its parent above it, its children below it. */
function family(view, children, machine, known) {
  const below = children.items.map((child) =>
    el("li", { "data-key": child.id }, workflowLink(child.id), " ", stateChip(known.get(child.machine), child.state)),
  );
  const here = [
    el("strong", {}, view.id),
    " ",
    stateChip(machine, view.state),
    below.length > 0 && el("ul", { class: "tree" }, below),
    children.cursor && el("p", { class: "soft" }, `The first ${number(below.length)} are shown; interlock children lists all.`),
  ];
  const own = el("li", { "data-key": view.id }, here);
  const tree = view.parent ? el("li", { "data-key": view.parent }, workflowLink(view.parent), el("ul", { class: "tree" }, own)) : own;
  return el("ul", { class: "tree", "aria-label": "Parent and children" }, tree);
}

function pauseButtons(view, again) {
  const button = (path, label, text) => {
    const act = () => call(path, { method: "POST", body: { id: view.id } });
    const onclick = () => ask({ title: `${label} ${view.id}?`, text, confirm: label, act }).then(again);
    return el("button", { type: "button", onclick, "aria-label": `${label} ${view.id}`, "data-key": label }, `${label} …`);
  };
  return el(
    "div",
    { class: "buttons" },
    view.paused
      ? button("v1/pauses/resume", "Resume", "Ends the pause of this workflow. A pause of its state or machine stays.")
      : button("v1/pauses", "Pause", "No step, undo or effect begins, and no timer fires. Events still apply."),
  );
}

function fact(name, value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

function possible(allowed, machine) {
  return table({
    label: "Events that have a transition from here",
    rows: allowed.items,
    key: (row) => `${row.event} ${row.to} ${row.guards}`,
    empty: "No event moves it from here.",
    columns: [
      { title: "Event", cell: (row) => el("span", { class: "wire" }, row.event) },
      { title: "To", cell: (row) => stateChip(machine, row.to) },
      { title: "If", cell: (row) => (row.guards ?? []).join(", ") || null },
    ],
  });
}

/** Attempts of steps, undos and effects, the newest first. */
function attempts(past, present) {
  // What was read with the history may have gone on since.
  const fresh = new Set(present.items.map(attemptKey));
  const items = [...past.items.filter((row) => row.ended_at && !fresh.has(attemptKey(row))), ...present.items];
  const newest = items.slice(Math.max(0, items.length - DRAWN_MAX)).reverse();
  const short = items.length - newest.length;
  return [
    past.more && el("p", { class: "soft" }, "There are more than this page can read; interlock attempts lists all."),
    table({
      label: "Attempts of steps, undos and effects",
      rows: newest,
      key: attemptKey,
      empty: "No step, undo or effect was tried yet.",
      columns: [
        { title: "Began", cell: (row) => moment(row.begun_at) },
        { title: "What", cell: (row) => `${row.kind} ${row.name}` },
        { title: "Attempt", number: true, cell: (row) => number(row.number) },
        { title: "Outcome", cell: (row) => el("span", { class: outcomeClass(row.outcome) }, row.outcome.replace("_", " ")) },
        { title: "Took", cell: (row) => row.ended_at && duration((Date.parse(row.ended_at) - Date.parse(row.begun_at)) / 1000) },
        { title: "Worker", cell: (row) => row.worker },
        { title: "Error", cell: failureOf },
      ],
    }),
    short > 0 && el("p", { class: "soft" }, `${several(short, "older attempt")} not shown here; interlock attempts lists all.`),
  ];
}

function attemptKey(row) {
  return `${row.key} ${row.number} ${row.begun_at}`;
}

function outcomeClass(outcome) {
  if (outcome === "completed") return "";
  return outcome === "running" ? "chip" : "chip warn";
}

function failureOf(row) {
  if (!row.traceback) return row.error || null;
  return el("details", {}, el("summary", {}, row.error), el("pre", { class: "json" }, row.traceback));
}

/** Newest first, so that the latest event stays in place while more arrive. */
function timeline(history, machine, id) {
  const { items, more } = history;
  const first = Math.max(0, items.length - DRAWN_MAX);
  const rows = items.slice(first).map((row, index) => happened(row, items[first + index - 1], machine, id));
  return [
    more && el("p", { class: "soft" }, `It is longer than this page can read; the newest of the first ${number(items.length)} events are shown.`),
    el("ol", { class: "timeline", reversed: true }, rows.reverse()),
    first > 0 && el("p", { class: "soft" }, `${several(first, "older event")} not shown here; interlock history lists all.`),
  ];
}

function happened(row, before, machine, id) {
  const stayed = row.from_state === row.to_state;
  const took = before && (Date.parse(row.created_at) - Date.parse(before.created_at)) / 1000;
  const changes = differences(before?.context, row.context);
  return el(
    "li",
    { "data-key": row.version },
    el(
      "div",
      { class: "what" },
      el("span", { class: "wire" }, row.event),
      " ",
      !stayed && [stateChip(machine, row.from_state), " → "],
      stateChip(machine, row.to_state),
    ),
    el("div", { class: "soft" }, `version ${row.version} · `, moment(row.created_at), took !== undefined && took >= 0 && ` · ${duration(took)} later`, row.by && ` · by ${row.by}`),
    changes.length > 0 && before && el("ul", { class: "changes" }, changes.map(change)),
    el(
      "details",
      {},
      el("summary", {}, "Details"),
      row.key && el("p", {}, "key ", el("code", {}, row.key)),
      row.payload !== null && row.payload !== undefined && [el("p", { class: "soft" }, "payload"), json(row.payload)],
      el("p", { class: "soft" }, "context after it"),
      json(row.context),
      !["final", "unwinding"].includes(lookOf(machine, row.to_state)) && forkButton(id, row.version),
    ),
  );
}

function forkButton(id, version) {
  const act = async (fresh) => {
    await call(at`v1/workflows/${id}/fork`, { method: "POST", body: { at_version: version, id: fresh } });
    location.hash = link.workflow(fresh);
  };
  const text = "A new workflow begins with this state and context. It runs its own step and timers; this workflow is not touched.";
  const field = { label: "Id of the new workflow", required: true, maxlength: 200 };
  const onclick = () => ask({ title: `Fork version ${version} of ${id}?`, text, field, confirm: "Fork", act });
  return el("div", { class: "buttons" }, el("button", { type: "button", onclick, "aria-label": `Fork version ${version}` }, "Fork …"));
}

function differences(before, after) {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  return [...names]
    .map((name) => ({ name, old: JSON.stringify(before?.[name]), fresh: JSON.stringify(after?.[name]) }))
    .filter(({ old, fresh }) => old !== fresh);
}

function change({ name, old, fresh }) {
  return el("li", {}, name, ": ", el("del", {}, old ?? "nothing"), " → ", el("ins", {}, fresh ?? "nothing"));
}
