// The circuit breaker of each dependency, and holding one open or closed.

import { all, at, call } from "../api.js";
import { ask } from "../ask.js";
import { el } from "../dom.js";
import { heading, table } from "../parts.js";
import { duration, moment, number } from "../time.js";

const LOOKS = { open: "bad", half_open: "warn", closed: "good" };
const WORDS = { open: "open", half_open: "half open", closed: "closed" };
const CHOICES = [
  ["open", "Hold open", "The dependency is not called until the breaker is set to another state; workflows wait and lose no attempt."],
  ["closed", "Hold closed", "The dependency is called, whatever fails, until the breaker is set to another state."],
  ["auto", "Let it decide", "It opens after failures and closes after a probe that succeeds."],
];

export const title = () => "Breakers";

export const load = (_, signal) => all("v1/breakers", { signal });

export function draw(found, _, again) {
  return [
    heading("Breakers"),
    el("p", { class: "lead" }, "The dependencies that steps call, as the process that answers this page sees them."),
    table({
      label: "Breakers",
      rows: found.items,
      key: (row) => row.name,
      empty: "No machine here calls a dependency.",
      columns: [
        { title: "Dependency", cell: (row) => el("strong", {}, row.name) },
        { title: "State", cell: state },
        { title: "Why", cell: (row) => row.reason && el("span", { class: "error" }, row.reason) },
        { title: "Since", cell: (row) => moment(row.since) },
        { title: "Failures", number: true, cell: (row) => number(row.failures) },
        { title: "Probes in", number: true, cell: (row) => (typeof row.probes_in_s === "number" ? duration(row.probes_in_s) : "–") },
        { title: "Under way", number: true, cell: (row) => `${number(row.under_way)} of ${number(row.concurrency_max)}` },
        { title: "Waiting", number: true, cell: (row) => number(row.waiting) },
        { title: "What to do", cell: (row) => actions(row, again) },
      ],
    }),
  ];
}

function state(row) {
  return el(
    "div",
    { class: "stacked" },
    el("span", { class: `chip ${LOOKS[row.state] ?? "plain"}` }, WORDS[row.state] ?? row.state),
    row.forced && el("span", { class: "soft" }, `held ${row.forced}`),
  );
}

function actions(row, again) {
  const now = row.forced ?? "auto";
  const choices = CHOICES.filter(([choice]) => choice !== now).map(([choice, label, effect]) => {
    const onclick = () =>
      ask({
        title: `${label}: ${row.name}?`,
        text: effect,
        confirm: label,
        act: () => call(at`v1/breakers/${row.name}`, { method: "PUT", body: { state: choice } }),
      }).then(again);
    return el("button", { type: "button", onclick, "aria-label": `${label}: ${row.name}`, "data-key": choice }, `${label} …`);
  });
  return el("div", { class: "buttons" }, choices);
}
