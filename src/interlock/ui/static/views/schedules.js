// Schedules: when each is due, what it has started, and pausing, resuming or triggering one.

import { all, at, call } from "../api.js";
import { ask } from "../ask.js";
import { el } from "../dom.js";
import { cutOff, heading, machineLink, table, workflowLink } from "../parts.js";
import { duration, moment, number } from "../time.js";

const PAUSE = ["pause", "Pause", "Nothing starts at its due times until it is resumed. Workflows that it has started go on."];
const RESUME = ["resume", "Resume", "It starts workflows at its due times again. Those that passed meanwhile are not caught up with."];
const TRIGGER = ["trigger", "Start one now", "One workflow starts now, besides those of its due times."];

export const title = () => "Schedules";

export const load = (_, signal) => all("v1/schedules", { signal });

export function draw(found, _, again) {
  return [
    heading("Schedules"),
    el("p", { class: "lead" }, "Workflows that start at times of a calendar, or at an interval. Each due time starts one."),
    table({
      label: "Schedules",
      rows: found.items,
      key: (row) => row.name,
      empty: "Nothing is scheduled here.",
      columns: [
        { title: "Schedule", cell: (row) => el("strong", {}, row.name) },
        { title: "Machine", cell: (row) => machineLink(row.machine) },
        { title: "When", cell: when },
        { title: "Next due", cell: (row) => (row.paused ? el("span", { class: "chip warn" }, "paused") : moment(row.next_due)) },
        { title: "Last workflow", cell: (row) => row.last && workflowLink(row.last) },
        { title: "Waiting", number: true, cell: (row) => number(row.waiting) },
        { title: "Started", number: true, cell: (row) => number(row.started) },
        { title: "Skipped", number: true, cell: (row) => number(row.skipped) },
        { title: "What to do", cell: (row) => actions(row, again) },
      ],
    }),
    cutOff(found),
  ];
}

function when(row) {
  return row.cron
    ? el("div", { class: "stacked" }, el("code", {}, row.cron), el("span", { class: "soft" }, row.timezone))
    : `every ${duration(row.every_s)}`;
}

function actions(row, again) {
  const buttons = [row.paused ? RESUME : PAUSE, TRIGGER].map(([action, label, effect]) => {
    const onclick = () =>
      ask({
        title: `${label}: ${row.name}?`,
        text: effect,
        confirm: label,
        act: () => call(at`v1/schedules/${row.name}/${action}`, { method: "POST" }),
      }).then(again);
    return el("button", { type: "button", onclick, "aria-label": `${label}: ${row.name}`, "data-key": action }, `${label} …`);
  });
  return el("div", { class: "buttons" }, buttons);
}
