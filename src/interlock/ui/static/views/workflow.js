// One workflow: why it is where it is, what can be done now, its path, its time axis, attempts, family and history.

import { all, at, call, Problem } from "../api.js";
import { timeAxis } from "../charts.js";
import { el } from "../dom.js";
import { drawing } from "../drawing.js";
import { ask, button, formOf } from "../forms.js";
import { letterActions } from "./letters.js";
import { drawnMachine, machines } from "../machines.js";
import {
  card,
  chip,
  differences,
  facts,
  failure,
  heading,
  json,
  link,
  lookOf,
  machineLink,
  stateChip,
  table,
  workflowLink,
} from "../parts.js";
import { duration, moment, now, number, relative, several } from "../time.js";

const HISTORY_PAGE = 1_000;
const DRAWN_MAX = 300;
const AXIS_MAX = 400;
const CHILDREN_DRAWN = 100;
const VERDICTS_MAX = 12;
const LETTERS_READ = 100;

let kept = null; // The history of the workflow that was looked at last: it grows only with the version.

export const title = ({ id }) => `Workflow ${id}`;

export async function load({ id }, signal) {
  const [view, known] = await Promise.all([call(at`v1/workflows/${id}`, { signal }), machines(signal)]);
  const machine = known.get(view.machine);
  if (kept?.id !== id || kept.version !== view.version) {
    const [history, allowed, past] = await Promise.all([
      all(at`v1/workflows/${id}/history`, { query: { limit: HISTORY_PAGE }, signal }),
      all(at`v1/workflows/${id}/allowed`, { signal }),
      all(at`v1/workflows/${id}/attempts`, { query: { limit: HISTORY_PAGE }, signal }),
    ]);
    kept = {
      id,
      version: view.version,
      history,
      allowed: allowed.items,
      past,
      verdicts: await verdictsOf(id, machine, allowed.items, signal),
    };
  }
  // Children move, and attempts begin and end, without a new version.
  const [sketch, children, present, why, letters] = await Promise.all([
    machine && drawnMachine(machine.name, signal),
    call(at`v1/workflows/${id}/children`, { query: { limit: CHILDREN_DRAWN }, signal }),
    call(at`v1/workflows/${id}/attempts`, { query: { after: view.version, limit: HISTORY_PAGE }, signal }),
    call(at`v1/workflows/${id}/why`, { signal }),
    all("v1/dead-letters", { query: { workflow: id, limit: LETTERS_READ }, signal }),
  ]);
  return { ...kept, view, sketch, children, why, letters: letters.items, known, machine, attempts: attemptsOf(kept.past, present) };
}

/** What the guards say about events that can be sent without data. */
async function verdictsOf(id, machine, allowed, signal) {
  const asked = new Set(allowed.filter(({ guards }) => guards?.length).map(({ event }) => event));
  const bare = (machine?.events ?? [])
    .filter(({ name, schema }) => asked.has(name) && formOf(schema).required === 0)
    .slice(0, VERDICTS_MAX);
  const found = await Promise.all(bare.map(({ name }) => verdict(id, name, {}, signal)));
  return new Map(bare.map(({ name }, index) => [name, found[index]]));
}

/** Null when a transition is possible with this data, else the reason of the guard that refuses it. */
async function verdict(id, event, data, signal) {
  const { items } = await call(at`v1/workflows/${id}/allowed`, { query: { event, data: JSON.stringify(data) }, signal });
  if (items.length === 0) return "No transition accepts it here.";
  if (items.some((each) => !each.blocked_by)) return null;
  return items.map(({ blocked_by: guard, reason }) => (reason ? `${guard} refuses it: ${reason}` : `${guard} refuses it.`)).join(" ");
}

function attemptsOf(past, present) {
  // What was read with the history may have gone on since.
  const fresh = new Set(present.items.map(attemptKey));
  const items = [...past.items.filter((row) => row.ended_at && !fresh.has(attemptKey(row))), ...present.items];
  return { items, more: past.more };
}

export function draw(data, params, again) {
  const { view, machine, why, letters, history, children, known } = data;
  const drawn = data.sketch && pathDrawing(data);
  return [
    heading(view.id, stateChip(machine, view.state), view.paused && chip("paused", "warn"), headActions(data, again)),
    el(
      "section",
      { class: `why ${why.waits_for === "operator" ? "alarmed" : ""}`, "aria-label": "Why it is here", "data-key": "why" },
      el("p", {}, why.text),
    ),
    letters.length > 0 && lettersOf(letters, machine, again),
    facts(
      ["Machine", machineLink(view.machine)],
      ["Version", number(view.version)],
      ["Created", moment(view.created_at)],
      ["Updated", moment(view.updated_at)],
      view.waiting && ["Waits for", el("span", { class: "error" }, view.waiting)],
      ...(view.timers ?? []).map((timer) => [`${timer.event} is due`, moment(timer.due_at)]),
    ),
    el(
      "div",
      { class: "columns" },
      card("What can be done now", possible(data, again)),
      el(
        "div",
        {},
        card("Context", json(view.context)),
        (view.parent || children.items.length > 0) && card("Family", family(view, children, machine, known)),
      ),
    ),
    drawn &&
      el(
        "section",
        { class: "card", "data-key": "path" },
        el("h2", {}, "Path", el("span", { class: "soft" }, "states and transitions that it took; the thick frame is where it is")),
        drawn,
      ),
    axisCard(data, params),
    card("Attempts", attemptTable(data.attempts)),
    card("History", timeline(history, data, again)),
  ];
}

// --- What can be done ------------------------------------------------------------------------------------------------

function headActions({ view, machine }, again) {
  const pause = (path, label, text) => {
    const act = () => call(path, { method: "POST", body: { id: view.id } });
    return button(`${label} …`, {
      about: view.id,
      scope: "operate",
      key: label,
      onclick: () => ask({ title: `${label} ${view.id}?`, text, confirm: label, act }).then(again),
    });
  };
  const ended = lookOf(machine, view.state) === "final" && "It has ended: nothing begins here any more.";
  return el(
    "div",
    { class: "buttons" },
    view.paused
      ? pause("v1/pauses/resume", "Resume", "Ends the pause of this workflow. A pause of its state or machine stays.")
      : ended
        ? button("Pause …", { about: view.id, refused: ended, key: "Pause" })
        : pause("v1/pauses", "Pause", "No step, undo or effect begins, and no timer fires. Events still apply."),
  );
}

function lettersOf(letters, machine, again) {
  return el(
    "section",
    { class: "problem", "data-key": "letters" },
    el("h2", {}, several(letters.length, "dead letter"), ": it waits for a person"),
    letters.map((row) =>
      el(
        "div",
        { class: "letter", "data-key": row.id },
        el("p", {}, `The ${row.kind} ${row.name} gave up after ${several(row.attempts, "attempt")}, `, moment(row.since), "."),
        failure(row.error, row.traceback),
        letterActions(row, again),
      ),
    ),
  );
}

/** Every event of the machine: those that can be sent as buttons, the rest with the reason why not. */
function possible(data, again) {
  const { view, machine, allowed } = data;
  if (!machine) return el("p", { class: "soft" }, "The code of its machine is not on this server.");
  const state = machine.states.find((each) => each.name === view.state);
  const own = new Set(state?.step?.returns ?? []);
  const names = [...new Set(allowed.map(({ event }) => event))];
  const events = names.map((name) => machine.events.find((each) => each.name === name)).filter(Boolean);
  const people = events.filter(({ name }) => !own.has(name));
  const machinery = events.filter(({ name }) => own.has(name));
  const others = machine.events.filter(({ name }) => !names.includes(name));
  return [
    people.length > 0
      ? el(
          "ul",
          { class: "events", "aria-label": "Events that can be sent" },
          people.map((event) => eventLine(event, data, again)),
        )
      : el("p", { class: "empty" }, "No event of a person moves it from here."),
    machinery.length > 0 &&
      el(
        "details",
        { "data-key": "machinery" },
        el("summary", {}, `Events that the step ${state.step.name} sends itself`),
        el(
          "ul",
          { class: "events" },
          machinery.map((event) => eventLine(event, data, again)),
        ),
      ),
    others.length > 0 &&
      el(
        "details",
        { "data-key": "others" },
        el("summary", {}, `Not possible in ${view.state}: ${several(others.length, "event")}`),
        el(
          "ul",
          { class: "events" },
          others.map(({ name }) => whyNot(name, machine, view.state)),
        ),
      ),
  ];
}

function eventLine(event, data, again) {
  const { allowed, machine, verdicts, view } = data;
  const rows = allowed.filter((row) => row.event === event.name);
  const guards = rows.flatMap((row) => row.guards ?? []);
  const refused = verdicts.get(event.name) ?? null;
  const targets = [...new Set(rows.map(({ to }) => to))];
  return el(
    "li",
    { "data-key": event.name },
    button(event.name, {
      about: view.id,
      scope: "send",
      refused: refused ?? undefined,
      main: true,
      onclick: () => sendEvent(event, data, again),
    }),
    el(
      "span",
      {},
      " → ",
      targets.map((to) => [stateChip(machine, to), " "]),
    ),
    refused ? el("span", { class: "error" }, refused) : guards.length > 0 && el("span", { class: "soft" }, `if ${guards.join(" and ")}`),
  );
}

function whyNot(name, machine, state) {
  const from = [...new Set(machine.transitions.filter((each) => each.event === name && each.source !== state).map(({ source }) => source))];
  const reason = from.length ? `only from ${from.join(", ")}` : "no state has a transition for it";
  return el("li", { "data-key": name }, el("span", { class: "wire" }, name), " ", el("span", { class: "soft" }, reason));
}

function sendEvent(event, { view, allowed }, again) {
  const form = formOf(event.schema);
  const key = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const headers = { "If-Match": `"${view.version}"`, "Idempotency-Key": `dashboard-${key}` };
  const act = async (data) => {
    try {
      await call(at`v1/workflows/${view.id}/events`, { method: "POST", headers, body: { event: event.name, data } });
    } catch (error) {
      throw error.status === 412 ? await conflict(view) : error;
    }
  };
  const check = async (data) => {
    const found = await verdict(view.id, event.name, data);
    return el("p", { class: found === null ? "good" : "error" }, found ?? "It would be accepted.");
  };
  const guarded = allowed.some((row) => row.event === event.name && row.guards?.length);
  const text = `It applies only if ${view.id} is still in ${view.state}, version ${view.version}.`;
  return ask({ title: `Send ${event.name} to ${view.id}?`, text, form, confirm: "Send", act, check: guarded ? check : undefined }).then(
    again,
  );
}

/** Explain a refused version: what has happened since, and who did it. */
export async function conflict({ id, version }) {
  const { items } = await call(at`v1/workflows/${id}/history`, { query: { cursor: version, limit: 5 } });
  const moves = items.map(
    (row) =>
      `${row.event} ${row.by ? `by ${row.by}` : "by the machine itself"} moved it to ${row.to_state}, ${relative(Date.parse(row.created_at))}`,
  );
  return new Problem({
    status: 412,
    title: "The workflow has moved since this page showed it.",
    detail: moves.length ? `${moves.join("; ")}.` : "Its version is another one now.",
    fix: "Nothing was changed. Close this dialog, look at the workflow as it is now, and decide again.",
    code: "version-conflict",
  });
}

// --- Path and time ---------------------------------------------------------------------------------------------------

function pathDrawing({ sketch, history, view }) {
  const drawn = drawing(sketch, { chosen: view.state, path: history.items });
  return drawn && el("div", { class: "scroll drawn", role: "region", "aria-label": "The path through the machine", tabindex: "0" }, drawn);
}

function axisCard(data, params) {
  const linear = params.axis === "linear";
  const href = link.page(`/workflows/${encodeURIComponent(params.id)}`, { axis: linear ? "" : "linear" });
  return el(
    "section",
    { class: "card", "data-key": "axis" },
    el("h2", {}, "Time axis", el("a", { href, class: "soft" }, linear ? "cut out idle time" : "true to scale")),
    el("div", { class: "scroll", role: "region", "aria-label": "Time axis", tabindex: "0" }, timeAxis({ ...axisOf(data), linear })),
    legend(),
  );
}

function legend() {
  const keys = [
    ["step", "completed or under way"],
    ["warn", "failed, tried again"],
    ["bad", "gave up, or its process died"],
    ["due", "timer that is due"],
  ];
  return el(
    "p",
    { class: "legend soft" },
    keys.map(([look, text]) => el("span", { class: `key ${look}` }, text)),
  );
}

function axisOf({ view, machine, history, attempts }) {
  const rows = history.items.slice(-AXIS_MAX);
  const present = now();
  const ended = lookOf(machine, view.state) === "final";
  const states = rows.map((row, index) => {
    const from = Date.parse(row.created_at);
    const to = index + 1 < rows.length ? Date.parse(rows[index + 1].created_at) : ended ? from : present;
    const took = duration(Math.max(0, to - from) / 1000);
    return {
      from,
      to,
      text: row.to_state,
      look: lookOf(machine, row.to_state),
      note: `${row.to_state}: ${took}, entered by ${row.event}${row.by ? ` by ${row.by}` : ""}`,
    };
  });
  const named = Map.groupBy(attempts.items.slice(-AXIS_MAX), (row) => `${row.kind} ${row.name}`);
  const tried = [...named].map(([label, items]) => ({
    label,
    bars: items.map((row) => {
      const from = Date.parse(row.begun_at);
      const to = row.ended_at ? Date.parse(row.ended_at) : present;
      return {
        from,
        to,
        text: `${row.number}`,
        look: outcomeLook(row.outcome),
        note: `attempt ${row.number} ${row.outcome}${row.error ? `: ${row.error}` : ""} (${row.worker})`,
      };
    }),
    marks: items
      .filter(({ outcome }) => outcome === "crashed")
      .map((row) => ({ at: Date.parse(row.ended_at), look: "bad", note: `its process ${row.worker} died; another took it over` })),
  }));
  const due = (view.timers ?? []).map((timer) => ({
    label: `timer ${timer.event}`,
    marks: [{ at: Date.parse(timer.due_at), look: "due", note: `${timer.event} is due ${relative(Date.parse(timer.due_at))}` }],
  }));
  const label = `Time axis: ${several(states.length, "state")}, ${several(attempts.items.length, "attempt")}, ${several(due.length, "timer")}`;
  return {
    label,
    rows: [{ label: "state", bars: states }, ...tried, ...due],
    now: ended && rows.length ? Date.parse(rows.at(-1).created_at) : present,
  };
}

function outcomeLook(outcome) {
  if (outcome === "completed" || outcome === "running") return outcome === "running" ? "running" : "step";
  return outcome === "crashed" ? "bad" : "warn";
}

// --- Attempts, family, history ---------------------------------------------------------------------------------------

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

/** Attempts of steps, undos and effects, the newest first. */
function attemptTable({ items, more }) {
  const newest = items.slice(Math.max(0, items.length - DRAWN_MAX)).reverse();
  const short = items.length - newest.length;
  return [
    more && el("p", { class: "soft" }, "There are more than this page can read; interlock attempts lists all."),
    table({
      label: "Attempts of steps, undos and effects",
      rows: newest,
      key: attemptKey,
      empty: "No step, undo or effect was tried yet.",
      columns: [
        { title: "Began", cell: (row) => moment(row.begun_at) },
        { title: "What", cell: (row) => `${row.kind} ${row.name}` },
        { title: "Attempt", number: true, cell: (row) => number(row.number) },
        {
          title: "Outcome",
          cell: (row) =>
            row.outcome === "completed" ? "completed" : chip(row.outcome.replace("_", " "), row.outcome === "running" ? "plain" : "warn"),
        },
        { title: "Took", cell: (row) => row.ended_at && duration((Date.parse(row.ended_at) - Date.parse(row.begun_at)) / 1000) },
        { title: "Worker", cell: (row) => row.worker },
        { title: "Error", cell: (row) => (row.error || row.traceback ? failure(row.error, row.traceback) : null) },
      ],
    }),
    short > 0 && el("p", { class: "soft" }, `${several(short, "older attempt")} not shown here; interlock attempts lists all.`),
  ];
}

function attemptKey(row) {
  return `${row.key} ${row.number} ${row.begun_at}`;
}

/** Newest first, so that the latest event stays in place while more arrive. */
function timeline({ items, more }, data, again) {
  const first = Math.max(0, items.length - DRAWN_MAX);
  const rows = items.slice(first).map((row, index) => happened(row, items[first + index - 1], data, again));
  return [
    more &&
      el("p", { class: "soft" }, `It is longer than this page can read; the newest of the first ${number(items.length)} events are shown.`),
    el("ol", { class: "timeline", reversed: true }, rows.reverse()),
    first > 0 && el("p", { class: "soft" }, `${several(first, "older event")} not shown here; interlock history lists all.`),
  ];
}

function happened(row, before, { machine, view }, again) {
  const stayed = row.from_state === row.to_state;
  const took = before && (Date.parse(row.created_at) - Date.parse(before.created_at)) / 1000;
  const changes = before ? differences(before.context, row.context) : [];
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
    el(
      "div",
      { class: "soft" },
      `version ${row.version} · `,
      moment(row.created_at),
      took !== undefined && took >= 0 && ` · ${duration(took)} later`,
      row.by && ` · by ${row.by}`,
    ),
    changes.length > 0 && el("ul", { class: "changes" }, changes),
    el(
      "details",
      {},
      el("summary", {}, "Details"),
      row.key && el("p", {}, "key ", el("code", {}, row.key)),
      row.payload !== null && row.payload !== undefined && [el("p", { class: "soft" }, "payload"), json(row.payload)],
      el("p", { class: "soft" }, "context after it"),
      json(row.context),
    ),
    versionActions(row, machine, view, again),
  );
}

/** Set it back to a version. What it has done since then is undone first; the dry run says what that is. */
function rewind(row, view) {
  const headers = { "If-Match": `"${view.version}"` };
  const send = async (note, dryRun) => {
    try {
      return await call(at`v1/workflows/${view.id}/rewind`, {
        method: "POST",
        headers,
        body: { to_version: row.version, note, dry_run: dryRun },
      });
    } catch (error) {
      throw error.status === 412 ? await conflict(view) : error;
    }
  };
  const planned = ({ state, undo }) => [
    el("p", {}, `It would be in ${state} again, with the context of version ${row.version}.`),
    undo.length > 0
      ? [
          el("p", {}, "Before that it runs these undos, in this order:"),
          el(
            "ol",
            { class: "undos" },
            undo.map((each) =>
              el("li", {}, el("span", { class: "wire" }, each.step), ` after ${each.undo}`, !each.known && " (its outcome is unknown)"),
            ),
          ),
        ]
      : el("p", {}, "Nothing has to be undone."),
  ];
  return ask({
    title: `Set ${view.id} back to version ${row.version}?`,
    text: "Its history stays. Steps that ran since then are undone first.",
    field: { label: "Why (kept in the history and the audit log)", maxlength: 1_000 },
    checkFirst: true,
    checkLabel: "Dry run",
    check: async (note) => planned(await send(note, true)),
    confirm: "Set it back",
    act: (note) => send(note, false),
  });
}

function versionActions(row, machine, view, again) {
  const final = ["final", "unwinding"].includes(lookOf(machine, row.to_state));
  const act = async (fresh) => {
    await call(at`v1/workflows/${view.id}/fork`, { method: "POST", body: { at_version: row.version, id: fresh } });
    location.hash = link.workflow(fresh);
  };
  const fork = () =>
    ask({
      title: `Fork version ${row.version} of ${view.id}?`,
      text: "A new workflow begins with this state and context. It runs its own step and timers; this workflow is not touched.",
      field: { label: "Id of the new workflow", required: true, maxlength: 200 },
      confirm: "Fork",
      act,
    });
  return el(
    "div",
    { class: "buttons small" },
    row.version < view.version &&
      button("Rewind to here …", {
        about: `version ${row.version}`,
        scope: "operate",
        key: "Rewind",
        onclick: () => rewind(row, view).then(again),
      }),
    !final && button("Fork …", { about: `version ${row.version}`, scope: "operate", onclick: fork }),
  );
}
