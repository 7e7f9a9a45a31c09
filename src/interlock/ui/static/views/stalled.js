// Workflows that have been in their state for longer than the machine declares.

import { all } from "../api.js";
import { el } from "../dom.js";
import { machines } from "../machines.js";
import { cutOff, heading, machineLink, stateChip, table, workflowLink } from "../parts.js";
import { duration, moment, number, since } from "../time.js";

const LIMIT = 1_000;

export const title = () => "Stalled";

/** Requested per machine, since each declares its own dwell. */
export async function stalledOf(names, signal) {
  const found = await Promise.all(names.map((name) => all("v1/stalled", { query: { machine: name, limit: LIMIT }, signal })));
  const more = found.some((each) => each.more || each.items.length >= LIMIT);
  return { items: found.flatMap((each) => each.items), more };
}

export async function load(_, signal) {
  const known = await machines(signal);
  return { found: await stalledOf([...known.keys()], signal), known };
}

/** An event that does not leave the state updates a workflow, too: it has been there at least since its last one. */
export function draw({ found, known }) {
  const rows = found.items.toSorted((one, other) => Date.parse(one.updated_at) - Date.parse(other.updated_at));
  return [
    heading("Stalled"),
    el("p", { class: "lead" }, "Active workflows that have been in their state for longer than its dwell; those that wait longest come first."),
    table({
      label: "Stalled workflows",
      rows,
      key: (row) => row.id,
      empty: "Nothing is stalled: every workflow moves within the time its machine declares.",
      columns: [
        { title: "Workflow", cell: (row) => workflowLink(row.id) },
        { title: "Machine", cell: (row) => machineLink(row.machine) },
        { title: "State", cell: (row) => stateChip(known.get(row.machine), row.state) },
        { title: "In it for", number: true, cell: (row) => `≥ ${time(since(row.updated_at))}` },
        { title: "Allowed", number: true, cell: (row) => time(dwell(known.get(row.machine), row.state)) },
        { title: "Version", number: true, cell: (row) => number(row.version) },
        { title: "Updated", cell: (row) => moment(row.updated_at) },
        { title: "Waits for", cell: (row) => row.waiting && el("span", { class: "error" }, row.waiting) },
      ],
    }),
    cutOff(found),
  ];
}

function time(seconds) {
  return typeof seconds === "number" ? duration(seconds) : "–";
}

function dwell(machine, name) {
  return machine?.states.find((state) => state.name === name)?.dwell_max_s;
}
