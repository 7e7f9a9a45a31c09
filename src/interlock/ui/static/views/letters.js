// Dead letters: steps, effects and undos whose attempts all failed. A person retries or resolves them.

import { all, at, call } from "../api.js";
import { ask } from "../ask.js";
import { el } from "../dom.js";
import { cutOff, heading, table, workflowLink } from "../parts.js";
import { moment, number } from "../time.js";

const NOTE_MAX = 1_000;

export const title = () => "Dead letters";

export const load = (_, signal) => all("v1/dead-letters", { signal });

export function draw(found, _, again) {
  return [
    heading("Dead letters"),
    el("p", { class: "lead" }, "Steps, effects and undos that failed for good and wait for a person. Trying again keeps the idempotency key; resolve what you handled yourself."),
    table({
      label: "Dead letters",
      rows: found.items,
      key: (row) => row.id,
      empty: "There is no dead letter: nothing has given up.",
      columns: [
        { title: "Workflow", cell: (row) => workflowLink(row.workflow) },
        { title: "Kind", cell: (row) => el("span", { class: "chip bad" }, row.kind) },
        { title: "Name", cell: (row) => row.name },
        { title: "Attempts", number: true, cell: (row) => number(row.attempts) },
        { title: "Error", cell: error },
        { title: "Since", cell: (row) => moment(row.since) },
        { title: "What to do", cell: (row) => actions(row, again) },
      ],
    }),
    cutOff(found),
  ];
}

function error(row) {
  const text = el("span", { class: "error" }, row.error);
  return row.traceback ? el("details", {}, el("summary", {}, text), el("pre", { class: "json" }, row.traceback)) : text;
}

function actions(row, again) {
  const what = `the ${row.kind} ${row.name} of ${row.workflow}`;
  const retry = () =>
    ask({
      title: "Try it again?",
      text: `It runs ${what} again, with the same idempotency key and all its attempts.`,
      confirm: "Try again",
      act: () => call(at`v1/dead-letters/${row.id}/retry`, { method: "POST" }),
    }).then(again);
  const resolve = () =>
    ask({
      title: "Dealt with?",
      text: `It takes the letter of ${what} away. An unwinding goes on; the workflow of a step waits for an event.`,
      field: { label: "What you have done (kept in the audit log)", required: true, maxlength: NOTE_MAX },
      confirm: "Resolve",
      act: (note) => call(at`v1/dead-letters/${row.id}/resolve`, { method: "POST", body: { note } }),
    }).then(again);
  return el(
    "div",
    { class: "buttons" },
    el("button", { type: "button", onclick: retry, "aria-label": `Try again: ${what}` }, "Try again …"),
    el("button", { type: "button", onclick: resolve, "aria-label": `Resolve: ${what}` }, "Resolve …"),
  );
}
