// Charts of the last hours or days, as the store has counted them: throughput, failures, backlog and time in state.

import { call } from "./api.js";
import { chart, stretch } from "./charts.js";
import { el } from "./dom.js";
import { link } from "./parts.js";
import { absolute, number } from "./time.js";

// Minutes are kept for a day: a range that begins a moment before it would be one of hours.
const RANGES = { "1h": 3_600, "3h": 3 * 3_600, "24h": 86_400 - 300, "7d": 7 * 86_400, "31d": 31 * 86_400 };
const USUAL = "3h";
const STATES_DRAWN = 4;
const LOOKS = ["one", "two", "three", "four"];

/** The figures of one machine, or of all of them. */
export function loadTrends(machine, { range = USUAL }, signal) {
  const seconds = RANGES[range] ?? RANGES[USUAL];
  const since = new Date(Date.now() - seconds * 1000).toISOString().replace(/\.\d+Z/, "Z");
  return call("v1/charts", { query: { machine, since }, signal });
}

export function trends(found, params, path) {
  const since = Date.parse(found.since);
  const stepS = found.step_s;
  const sum = (name) => summed(found.machines.map((each) => each[name]));
  const perMinute = (values) => values.map((value) => (value === null ? null : (value * 60) / stepS));
  const failed = sum("failed_attempts");
  const lines = (...pairs) => pairs.map(([name, values, look]) => ({ name, values, look }));
  const both = { since, stepS };
  return el(
    "section",
    { class: "card", "data-key": "trends" },
    el("h2", {}, "Over time", ranges(params, path)),
    el(
      "div",
      { class: "charts" },
      chart({
        ...both,
        title: "Throughput per minute",
        lines: lines(["moves", perMinute(sum("moves")), "one"], ["started", perMinute(sum("started")), "two"]),
      }),
      chart({
        ...both,
        title: `Failures per ${words(stepS)}`,
        lines: lines(["failed attempts", failed, "warn"], ["dead letters", sum("dead_letters"), "bad"], ["refused", sum("refused"), "two"]),
        note: failures(failed, sum("dead_letters"), since, stepS),
      }),
      chart({
        ...both,
        title: "Backlog",
        lines: lines(["not ended", sum("workflows"), "one"], ["due, not begun", sum("waiting"), "warn"]),
      }),
      found.machines.length === 1 && dwell(found.machines[0], both),
    ),
  );
}

function ranges(params, path) {
  const chosen = RANGES[params.range] ? params.range : USUAL;
  const shown = Object.keys(RANGES).map((each) =>
    el("a", { href: link.page(path, { ...kept(params), range: each }), "aria-current": each === chosen && "true" }, each),
  );
  return el("span", { class: "ranges", role: "group", "aria-label": "Range" }, shown);
}

/** What else is in the address, without the place in a listing. */
function kept({ query }) {
  return Object.fromEntries(["state", "where", "updated_after", "updated_before", "order"].map((name) => [name, query.getAll(name)]));
}

/** The states in which workflows stay longest, by their mean time. */
function dwell(machine, both) {
  const peak = ({ dwell_mean_s: values }) => Math.max(...values.map((value) => value ?? 0));
  const states = machine.states.filter((each) => !each.final && peak(each) > 0).sort((one, other) => peak(other) - peak(one));
  if (states.length === 0) return null;
  const lines = states.slice(0, STATES_DRAWN).map((each, index) => ({ name: each.state, values: each.dwell_mean_s, look: LOOKS[index] }));
  return chart({ ...both, title: "Mean time in state", lines, unit: "s" });
}

/** In words when it failed, so that an operator does not have to read it off the line. */
function failures(failed, letters, since, stepS) {
  const found = stretch(failed, since, stepS) ?? stretch(letters, since, stepS);
  if (!found) return "No attempt has failed in this range.";
  const [from, to] = found.map((time) => absolute(time).slice(0, 16));
  const total = (values) => number(values.reduce((sum, value) => sum + (value ?? 0), 0));
  const end = to.slice(0, 10) === from.slice(0, 10) ? to.slice(11) : to;
  return `Most failures between ${from} and ${end}; ${total(failed)} failed attempts and ${total(letters)} dead letters in the whole range.`;
}

function words(stepS) {
  if (stepS < 3_600) return stepS === 60 ? "minute" : `${stepS / 60} minutes`;
  return stepS === 3_600 ? "hour" : stepS === 86_400 ? "day" : `${stepS / 3_600} hours`;
}

function summed(rows) {
  if (rows.length === 0) return [];
  return rows[0].map((_, index) => {
    const values = rows.map((row) => row[index]).filter((value) => value !== null && value !== undefined);
    return values.length ? values.reduce((sum, value) => sum + value, 0) : null;
  });
}
