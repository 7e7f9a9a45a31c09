// Dead letters: steps, effects and undos whose attempts all failed, grouped by machine, name and error.

import { all, at, call } from "../api.js";
import { startBulk } from "../bulk.js";
import { el, show } from "../dom.js";
import { ask, button } from "../forms.js";
import { chip, cutOff, failure, heading, link, machineLink, table, workflowLink } from "../parts.js";
import { moment, number, several } from "../time.js";

const NOTE_MAX = 1_000;
const LISTED = 200;
const RESOLVED_AT_ONCE = 4;
const RESOLVED_MAX = 10_000;

export const title = () => "Dead letters";

function filterOf({ machine, kind, name, group }) {
  return { machine, kind, name, group };
}

export async function load(params, signal) {
  const chosen = params.name !== undefined;
  const [groups, letters] = await Promise.all([
    all("v1/dead-letters/groups", { signal }),
    chosen ? call("v1/dead-letters", { query: { ...filterOf(params), limit: LISTED }, signal }) : null,
  ]);
  return { groups, letters };
}

export function draw({ groups, letters }, params, again) {
  const total = groups.items.reduce((sum, each) => sum + each.count, 0);
  if (letters) return one(groups, letters, params, again);
  return [
    heading(
      "Dead letters",
      total > 0 && el("span", { class: "soft" }, `${several(total, "dead letter")} in ${several(groups.items.length, "group")}`),
    ),
    el(
      "p",
      { class: "lead" },
      "Steps, effects and undos that failed for good and wait for a person. Those with the same error are one group: ",
      "numbers and quoted names in it are left out. Trying again keeps the idempotency key.",
    ),
    table({
      label: "Dead letters by error",
      rows: groups.items,
      key: (row) => JSON.stringify(filterOf(row)),
      empty: "There is no dead letter: nothing has given up.",
      columns: [
        { title: "Count", number: true, cell: (row) => el("strong", { class: "figure" }, number(row.count)) },
        { title: "Machine", cell: (row) => machineLink(row.machine) },
        { title: "What", cell: (row) => [chip(row.kind, "bad"), " ", el("span", { class: "wire" }, row.name)] },
        {
          title: "Error",
          cell: (row) => el("a", { href: link.page("/dead-letters", filterOf(row)), class: "error" }, row.group || "no error text"),
        },
        { title: "From", cell: (row) => moment(row.since) },
        { title: "To", cell: (row) => moment(row.latest) },
        { title: "What to do", cell: (row) => groupActions(row, again) },
      ],
    }),
    cutOff(groups),
  ];
}

function one(groups, letters, params, again) {
  const group = groups.items.find((each) => JSON.stringify(filterOf(each)) === JSON.stringify(filterOf(params)));
  const count = group?.count ?? letters.items.length;
  return [
    heading("Dead letters", el("a", { href: "#/dead-letters" }, "all groups"), group && groupActions(group, again)),
    el(
      "p",
      { class: "lead" },
      `${several(count, "dead letter")} of the ${params.kind} ${params.name} of ${params.machine}: ${params.group}`,
    ),
    table({
      label: "Dead letters",
      rows: letters.items,
      key: (row) => row.id,
      empty: "No dead letter of this group is left.",
      columns: [
        { title: "Workflow", cell: (row) => workflowLink(row.workflow) },
        { title: "Kind", cell: (row) => chip(row.kind, "bad") },
        { title: "Name", cell: (row) => row.name },
        { title: "Attempts", number: true, cell: (row) => number(row.attempts) },
        { title: "Error", cell: (row) => failure(row.error, row.traceback) },
        { title: "Since", cell: (row) => moment(row.since) },
        { title: "What to do", cell: (row) => letterActions(row, again) },
      ],
    }),
    letters.items.length < count && el("p", { class: "soft" }, `The oldest ${number(letters.items.length)} of ${number(count)} are shown.`),
  ];
}

// --- One letter ------------------------------------------------------------------------------------------------------

/** Buttons that retry or resolve one dead letter. */
export function letterActions(row, again) {
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
    button("Try again …", { about: what, scope: "operate", onclick: retry }),
    button("Resolve …", { about: what, scope: "operate", onclick: resolve }),
  );
}

// --- A whole group ---------------------------------------------------------------------------------------------------

function groupActions(group, again) {
  const what = `${several(group.count, "dead letter")} of ${group.name}`;
  const retry = () =>
    startBulk({
      title: `Try again: ${what}?`,
      text: `Each ${group.kind} ${group.name} of ${group.machine} that failed by this error runs again, with its idempotency key and all its attempts: ${group.group}`,
      body: { machine: group.machine, action: "retry", kind: group.kind, letter: group.name, error: group.group },
    }).then(again);
  return el(
    "div",
    { class: "buttons" },
    button("Try all again …", { about: what, scope: "operate", main: true, onclick: retry }),
    button("Resolve all …", { about: what, scope: "operate", onclick: () => resolveAll(group, what).then(again) }),
  );
}

/** Each letter is resolved by a request of its own, with the same note; closing the dialog stops after those under way. */
function resolveAll(group, what) {
  const bar = el("progress", { max: group.count, value: 0, "aria-label": "Resolved", hidden: true });
  const told = el("p", { class: "soft", role: "status" });
  const note = el("textarea", { id: "resolve-note", rows: 3, required: true, maxlength: NOTE_MAX, autofocus: true });
  const act = async (text) => {
    const { items } = await call("v1/dead-letters", { query: { ...filterOf(group), limit: RESOLVED_MAX } });
    const waiting = [...items];
    let done = 0;
    bar.hidden = false;
    const work = async () => {
      for (let row = waiting.pop(); row && bar.isConnected; row = waiting.pop()) {
        try {
          await call(at`v1/dead-letters/${row.id}/resolve`, { method: "POST", body: { note: text } });
        } catch (error) {
          if (error.status !== 404) throw error; // Another operator was faster: it is dealt with.
        }
        done += 1;
        bar.value = done;
        show(told, `${number(done)} of ${number(items.length)}`);
      }
    };
    await Promise.all(Array.from({ length: RESOLVED_AT_ONCE }, work));
  };
  return ask({
    title: `Resolve ${what}?`,
    text: "It takes these letters away with one note. Unwindings go on; workflows of steps wait for an event. Keep this page open until it is done.",
    form: {
      node: el("div", {}, el("label", { for: "resolve-note" }, "What you have done (kept in the audit log)"), note, bar, told),
      read: () => note.value.trim(),
    },
    confirm: "Resolve all",
    act,
  });
}
