// Pages of the operation: stalled workflows, undos that are owed, breakers, hot rows, schedules, and bulk runs.
//
// Sections: one per page, each an object with `title`, `load` and `draw`.

import { all, at, call } from "../api.js";
import { DONE, refusals } from "../bulk.js";
import { el } from "../dom.js";
import { ask, button } from "../forms.js";
import { machines } from "../machines.js";
import { card, chip, cutOff, facts, heading, link, machineLink, stateChip, table, workflowLink } from "../parts.js";
import { duration, moment, number, several, since } from "../time.js";

// --- Stalled ---------------------------------------------------------------------------------------------------------

const LIMIT = 1_000;

const titleStalled = () => "Stalled";

/** Requested per machine, since each declares its own dwell. */
export async function stalledOf(names, signal) {
  const found = await Promise.all(names.map((name) => all("v1/stalled", { query: { machine: name, limit: LIMIT }, signal })));
  const more = found.some((each) => each.more || each.items.length >= LIMIT);
  return { items: found.flatMap((each) => each.items), more };
}

async function loadStalled(_, signal) {
  const known = await machines(signal);
  return { found: await stalledOf([...known.keys()], signal), known };
}

/** An event that does not leave the state updates a workflow, too: it has been there at least since its last one. */
function drawStalled({ found, known }) {
  const rows = found.items.toSorted((one, other) => Date.parse(one.updated_at) - Date.parse(other.updated_at));
  return [
    heading("Stalled"),
    el(
      "p",
      { class: "lead" },
      "Active workflows that have been in their state for longer than its dwell; those that wait longest come first.",
    ),
    table({
      label: "Stalled workflows",
      rows,
      key: (row) => row.id,
      empty: "Nothing is stalled: every workflow moves within the time its machine declares.",
      columns: [
        { title: "Workflow", cell: (row) => workflowLink(row.id) },
        { title: "Machine", cell: (row) => machineLink(row.machine) },
        { title: "State", cell: (row) => stateChip(known.get(row.machine), row.state) },
        { title: "In it for", number: true, cell: (row) => `≥ ${timeText(since(row.updated_at))}` },
        { title: "Allowed", number: true, cell: (row) => timeText(dwell(known.get(row.machine), row.state)) },
        { title: "Version", number: true, cell: (row) => number(row.version) },
        { title: "Updated", cell: (row) => moment(row.updated_at) },
        { title: "Waits for", cell: (row) => row.waiting && el("span", { class: "error" }, row.waiting) },
      ],
    }),
    cutOff(found),
  ];
}

function timeText(seconds) {
  return typeof seconds === "number" ? duration(seconds) : "–";
}

function dwell(machine, name) {
  return machine?.states.find((state) => state.name === name)?.dwell_max_s;
}

export const stalled = { title: titleStalled, load: loadStalled, draw: drawStalled };

// --- Compensations ---------------------------------------------------------------------------------------------------

const UNDO_LOOKS = { dead: "bad", retrying: "warn", running: "good", waiting: "plain" };

const titleCompensations = () => "Compensations";

const loadCompensations = (_, signal) => all("v1/compensations", { signal });

function drawCompensations(found) {
  return [
    heading("Compensations"),
    el(
      "p",
      { class: "lead" },
      "Undos that unwinding workflows still have to run. One that is dead waits for a person: see the ",
      el("a", { href: "#/dead-letters" }, "dead letters"),
      ".",
    ),
    table({
      label: "Compensations",
      rows: found.items,
      key: (row) => row.key,
      empty: "Nothing is owed: no workflow has an undo left to run.",
      columns: [
        { title: "Workflow", cell: (row) => workflowLink(row.workflow) },
        { title: "Machine", cell: (row) => machineLink(row.machine) },
        { title: "Undoes step", cell: (row) => row.step },
        { title: "State", cell: (row) => el("span", { class: `chip ${UNDO_LOOKS[row.state] ?? "plain"}` }, row.state) },
        { title: "Attempts", number: true, cell: (row) => number(row.attempts) },
        { title: "Key", cell: (row) => el("code", {}, row.key) },
        { title: "Key of what it undoes", cell: (row) => el("code", {}, row.undoes) },
      ],
    }),
    cutOff(found),
  ];
}

export const compensations = { title: titleCompensations, load: loadCompensations, draw: drawCompensations };

// --- Breakers --------------------------------------------------------------------------------------------------------

const BREAKER_LOOKS = { open: "bad", half_open: "warn", closed: "good" };
const BREAKER_WORDS = { open: "open", half_open: "half open", closed: "closed" };
const BREAKER_CHOICES = [
  ["open", "Hold open", "The dependency is not called until the breaker is set to another state; workflows wait and lose no attempt."],
  ["closed", "Hold closed", "The dependency is called, whatever fails, until the breaker is set to another state."],
  ["auto", "Let it decide", "It opens after failures and closes after a probe that succeeds."],
];

const titleBreakers = () => "Breakers";

const loadBreakers = (_, signal) => all("v1/breakers", { signal });

function drawBreakers(found, _, again) {
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
        { title: "State", cell: breakerState },
        { title: "Why", cell: (row) => row.reason && el("span", { class: "error" }, row.reason) },
        { title: "Since", cell: (row) => moment(row.since) },
        { title: "Failures", number: true, cell: (row) => number(row.failures) },
        {
          title: "Probes in",
          number: true,
          cell: (row) => (typeof row.probes_in_s === "number" ? duration(row.probes_in_s) : "–"),
        },
        { title: "Under way", number: true, cell: (row) => `${number(row.under_way)} of ${number(row.concurrency_max)}` },
        { title: "Waiting", number: true, cell: (row) => number(row.waiting) },
        { title: "What to do", cell: (row) => breakerActions(row, again) },
      ],
    }),
  ];
}

function breakerState(row) {
  return el(
    "div",
    { class: "stacked" },
    el("span", { class: `chip ${BREAKER_LOOKS[row.state] ?? "plain"}` }, BREAKER_WORDS[row.state] ?? row.state),
    row.forced && el("span", { class: "soft" }, `held ${row.forced}`),
  );
}

function breakerActions(row, again) {
  const now = row.forced ?? "auto";
  const choices = BREAKER_CHOICES.filter(([choice]) => choice !== now).map(([choice, label, effect]) => {
    const onclick = () =>
      ask({
        title: `${label}: ${row.name}?`,
        text: effect,
        confirm: label,
        act: () => call(at`v1/breakers/${row.name}`, { method: "PUT", body: { state: choice } }),
      }).then(again);
    return button(`${label} …`, { about: row.name, scope: "operate", key: choice, onclick });
  });
  return el("div", { class: "buttons" }, choices);
}

export const breakers = { title: titleBreakers, load: loadBreakers, draw: drawBreakers };

// --- Hot rows --------------------------------------------------------------------------------------------------------

const titleHot = () => "Hot rows";

const loadHot = (_, signal) => all("v1/contention", { signal });

function drawHot(found) {
  return [
    heading("Hot rows"),
    el(
      "p",
      { class: "lead" },
      "A write that has to wait for another one of the same row is a hand-off. Many writes to different rows are not.",
    ),
    table({
      label: "Hot rows",
      rows: found.items,
      key: (row) => JSON.stringify([row.database, row.source, row.table, row.key]),
      empty: "Nothing is hot: no writer was seen to wait for another one of the same row.",
      columns: [
        { title: "Hot", cell: (row) => row.flagged && el("span", { class: "chip warn" }, "hot") },
        { title: "Database", cell: (row) => row.database },
        { title: "Table or machine", cell: (row) => row.table },
        { title: "Key", cell: (row) => hotKey(row) },
        { title: "Hand-offs/s", number: true, cell: (row) => number(row.handoffs_per_s, 1) },
        { title: "Conflicts/s", number: true, cell: (row) => number(row.conflicts_per_s, 1) },
        { title: "Writes/s", number: true, cell: (row) => number(row.writes_per_s, 1) },
        { title: "Mean wait", number: true, cell: (row) => `${number(row.wait_s * 1000, 2)} ms` },
        { title: "Seen by", cell: (row) => row.source },
      ],
    }),
  ];
}

function hotKey(row) {
  if (row.source === "workflow" && typeof row.key === "string") return workflowLink(row.key);
  return el("code", {}, typeof row.key === "string" ? row.key : JSON.stringify(row.key));
}

export const hot = { title: titleHot, load: loadHot, draw: drawHot };

// --- Schedules -------------------------------------------------------------------------------------------------------

const PAUSE_SCHEDULE = ["pause", "Pause", "Nothing starts at its due times until it is resumed. Workflows that it has started go on."];
const RESUME_SCHEDULE = [
  "resume",
  "Resume",
  "It starts workflows at its due times again. Those that passed meanwhile are not caught up with.",
];
const TRIGGER = ["trigger", "Start one now", "One workflow starts now, besides those of its due times."];

const titleSchedules = () => "Schedules";

const loadSchedules = (_, signal) => all("v1/schedules", { signal });

function drawSchedules(found, _, again) {
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
        { title: "What to do", cell: (row) => scheduleActions(row, again) },
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

function scheduleActions(row, again) {
  const buttons = [row.paused ? RESUME_SCHEDULE : PAUSE_SCHEDULE, TRIGGER].map(([action, label, effect]) => {
    const onclick = () =>
      ask({
        title: `${label}: ${row.name}?`,
        text: effect,
        confirm: label,
        act: () => call(at`v1/schedules/${row.name}/${action}`, { method: "POST" }),
      }).then(again);
    return button(`${label} …`, { about: row.name, scope: "operate", key: action, onclick });
  });
  return el("div", { class: "buttons" }, buttons);
}

export const schedules = { title: titleSchedules, load: loadSchedules, draw: drawSchedules };

// --- Bulk runs ---------------------------------------------------------------------------------------------------------

const RUN_LOOKS = { running: "good", interrupted: "warn", done: "plain" };

async function loadRuns({ run }, signal) {
  return run === undefined ? all("v1/bulk", { signal }) : call(at`v1/bulk/${run}`, { signal });
}

function drawRuns(found, { run }, again) {
  return run === undefined ? runs(found) : oneRun(found, again);
}

function runs(found) {
  return [
    heading("Bulk runs"),
    el(
      "p",
      { class: "lead" },
      "Actions on many workflows at once, the newest first. They are begun on the list of workflows or the dead letters.",
    ),
    table({
      label: "Bulk runs",
      rows: found.items,
      key: (row) => row.name,
      empty: "Nothing was done in bulk yet.",
      columns: [
        {
          title: "Run",
          cell: (row) => el("a", { href: link.page(`/bulk/${encodeURIComponent(row.name)}`), class: "id" }, row.name),
        },
        { title: "Machine", cell: (row) => machineLink(row.machine) },
        { title: "Action", cell: (row) => [row.action, " ", row.event && el("span", { class: "wire" }, row.event)] },
        { title: "State", cell: (row) => chip(row.state, RUN_LOOKS[row.state]) },
        { title: "Done", number: true, cell: (row) => `${number(row.moved)} of ${number(row.matching)}` },
        { title: "Refused", number: true, cell: (row) => number(refusedOf(row)) },
        { title: "By", cell: (row) => row.by },
        { title: "Since", cell: (row) => moment(row.since) },
      ],
    }),
    cutOff(found),
  ];
}

function refusedOf(row) {
  return Object.values(row.refused ?? {}).reduce((sum, each) => sum + each, 0);
}

function oneRun(row, again) {
  const done = row.moved + refusedOf(row);
  const filter = Object.entries(row.filter ?? {}).filter(([, value]) => value !== null && value !== "" && value.length !== 0);
  return [
    heading(row.name, chip(row.state, RUN_LOOKS[row.state]), runActions(row, again)),
    facts(
      ["Machine", machineLink(row.machine)],
      ["Action", [row.action, " ", row.event]],
      ["By", row.by],
      ["Since", moment(row.since)],
      ["Updated", moment(row.updated)],
      ...filter.map(([name, value]) => [name.replaceAll("_", " "), el("code", {}, [value].flat().join(", "))]),
      row.note && ["Note", row.note],
    ),
    card(
      "Progress",
      el("progress", {
        max: Math.max(row.matching, done, 1),
        value: done,
        "aria-label": `${number(done)} of ${number(row.matching)}`,
      }),
      el(
        "p",
        {},
        el("strong", {}, number(row.moved)),
        ` of ${number(row.matching)} ${DONE[row.action] ?? "done"}`,
        row.state === "running" && " so far",
        ".",
      ),
      refusals(row),
    ),
    el("p", {}, el("a", { href: "#/bulk" }, "All bulk runs")),
  ];
}

function runActions(row, again) {
  const path = at`v1/bulk/${row.name}`;
  const stop = () =>
    ask({
      title: `Stop ${row.name}?`,
      text: "It stops at its next page. What it has done stays done; it can go on later.",
      confirm: "Stop",
      act: () => call(path, { method: "DELETE" }),
    }).then(again);
  const resume = () =>
    ask({
      title: `Go on with ${row.name}?`,
      text: "It goes on after the last workflow that it has handled.",
      confirm: "Go on",
      act: () => call(path, { method: "POST", body: bodyOf(row) }),
    }).then(again);
  return el(
    "div",
    { class: "buttons" },
    row.state === "running" && button("Stop …", { about: row.name, scope: "operate", onclick: stop }),
    row.state === "interrupted" && button("Go on …", { about: row.name, scope: "operate", main: true, onclick: resume }),
  );
}

/** The request that began it: the same one goes on with it. */
function bodyOf({ machine, action, event, data, note, rate_per_s: rate, filter = {} }) {
  const body = { machine, action, ...filter, note, rate_per_s: rate, ...(action === "send" && { event, data }) };
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null && value !== undefined && value !== ""));
}

export const bulk = { title: ({ run }) => (run ? `Bulk run ${run}` : "Bulk runs"), load: loadRuns, draw: drawRuns };
