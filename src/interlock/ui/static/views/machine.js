// One machine: its drawing with counts, and its workflows, all of them or those in one state.

import { call } from "../api.js";
import { diagram } from "../diagram.js";
import { el } from "../dom.js";
import { machine } from "../machines.js";
import { heading, link, lookOf, stateChip, table, workflowLink } from "../parts.js";
import { moment, number, several } from "../time.js";

const PAGE = 50;

export const title = ({ name }) => `Machine ${name}`;

export async function load({ name, state, cursor }, signal) {
  const [told, page] = await Promise.all([
    machine(name, signal),
    call("v1/workflows", { query: { machine: name, state, cursor, limit: PAGE }, signal }),
  ]);
  return { told, page };
}

export function draw({ told, page }, { name, state, cursor }) {
  const drawing = diagram(told, state);
  const total = Object.values(told.counts ?? {}).reduce((sum, each) => sum + each, 0);
  return [
    heading(`Machine ${name}`, el("span", { class: "soft" }, `version ${told.version}, ${several(total, "workflow")}`)),
    drawing && el("div", { class: "scroll drawn", role: "region", "aria-label": "The drawn machine", tabindex: "0", "data-key": "drawing" }, drawing),
    el("h2", { id: "workflows" }, state ? ["Workflows in ", stateChip(told, state)] : "Workflows"),
    filter(told, name, state),
    workflows(told, page, state),
    pages(name, state, cursor, page.cursor),
  ];
}

function filter(told, name, chosen) {
  const option = (state, label, count) =>
    el(
      "li",
      {},
      el(
        "a",
        {
          href: link.machine(name, { state }),
          class: `chip ${state ? lookOf(told, state) : "plain"}`,
          "aria-current": (state ?? null) === (chosen ?? null) && "true",
        },
        label,
        count !== undefined && el("span", { class: "number" }, number(count)),
      ),
    );
  return el(
    "ul",
    { class: "filter", "aria-label": "Only workflows in one state" },
    option(null, "all"),
    told.states.map((state) => option(state.name, state.name, told.counts?.[state.name])),
  );
}

function workflows(told, page, state) {
  return table({
    label: "Workflows",
    rows: page.items,
    key: (row) => row.id,
    empty: state ? `No workflow is in ${state}.` : "There is no workflow of this machine yet.",
    columns: [
      { title: "Workflow", cell: (row) => workflowLink(row.id) },
      { title: "State", cell: (row) => stateChip(told, row.state) },
      { title: "Version", number: true, cell: (row) => number(row.version) },
      { title: "Updated", cell: (row) => moment(row.updated_at) },
      { title: "Created", cell: (row) => moment(row.created_at) },
      { title: "Waits for", cell: (row) => (row.waiting ? el("span", { class: "error" }, row.waiting) : row.paused && el("span", { class: "chip warn" }, "paused")) },
    ],
  });
}

function pages(name, state, cursor, next) {
  if (!cursor && !next) return null;
  return el(
    "nav",
    { class: "buttons", "aria-label": "Pages of workflows", "data-key": "pages" },
    cursor && el("a", { class: "button", href: link.machine(name, { state }) }, "First page"),
    next && el("a", { class: "button", href: link.machine(name, { state, cursor: next }) }, "Next page"),
  );
}
