// One workflow: its state, its context, the allowed events and its history.

import { all, at, call } from "../api.js";
import { el } from "../dom.js";
import { machines } from "../machines.js";
import { heading, json, machineLink, stateChip, table } from "../parts.js";
import { duration, moment, number, several } from "../time.js";

const HISTORY_PAGE = 1_000;
const DRAWN_MAX = 300;

let kept = null; // The history of the workflow that was looked at last: it grows only with the version.

export const title = ({ id }) => `Workflow ${id}`;

export async function load({ id }, signal) {
  const view = await call(at`v1/workflows/${id}`, { signal });
  if (kept?.id !== id || kept.version !== view.version) {
    const [history, allowed] = await Promise.all([
      all(at`v1/workflows/${id}/history`, { query: { limit: HISTORY_PAGE }, signal }),
      all(at`v1/workflows/${id}/allowed`, { signal }),
    ]);
    kept = { id, version: view.version, history, allowed };
  }
  return { ...kept, view, machine: (await machines(signal)).get(view.machine) };
}

export function draw({ view, history, allowed, machine }) {
  return [
    heading(view.id, stateChip(machine, view.state)),
    view.waiting && el("p", { class: "waiting" }, view.waiting),
    el(
      "dl",
      { class: "facts" },
      fact("Machine", machineLink(view.machine)),
      fact("Version", number(view.version)),
      fact("Created", moment(view.created_at)),
      fact("Updated", moment(view.updated_at)),
    ),
    el(
      "div",
      { class: "columns" },
      el("section", { class: "card" }, el("h2", {}, "Timeline"), timeline(history, machine)),
      el(
        "div",
        {},
        el("section", { class: "card" }, el("h2", {}, "Context"), json(view.context)),
        el("section", { class: "card" }, el("h2", {}, "Allowed now"), possible(allowed, machine)),
      ),
    ),
  ];
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

/** Newest first, so that the latest event stays in place while more arrive. */
function timeline(history, machine) {
  const { items, more } = history;
  const first = Math.max(0, items.length - DRAWN_MAX);
  const rows = items.slice(first).map((row, index) => happened(row, items[first + index - 1], machine));
  return [
    more && el("p", { class: "soft" }, `It is longer than this page can read; the newest of the first ${number(items.length)} events are shown.`),
    el("ol", { class: "timeline", reversed: true }, rows.reverse()),
    first > 0 && el("p", { class: "soft" }, `${several(first, "older event")} not shown here; interlock history lists all.`),
  ];
}

function happened(row, before, machine) {
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
    el("div", { class: "soft" }, `version ${row.version} · `, moment(row.created_at), took !== undefined && took >= 0 && ` · ${duration(took)} later`),
    changes.length > 0 && before && el("ul", { class: "changes" }, changes.map(change)),
    el(
      "details",
      {},
      el("summary", {}, "Details"),
      row.key && el("p", {}, "key ", el("code", {}, row.key)),
      row.payload !== null && row.payload !== undefined && [el("p", { class: "soft" }, "payload"), json(row.payload)],
      el("p", { class: "soft" }, "context after it"),
      json(row.context),
    ),
  );
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
