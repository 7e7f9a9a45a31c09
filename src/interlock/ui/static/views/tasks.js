// The inbox: decisions that wait for a person, by role. A task is claimed, released, and decided by one of its events.

import { at, call } from "../api.js";
import { el } from "../dom.js";
import { ask, button, formOf } from "../forms.js";
import { chip, heading, link, machineLink, table, workflowLink } from "../parts.js";
import { absolute, moment } from "../time.js";
import { conflict } from "./workflow.js";

const PAGE = 50;
const PAGES_MAX = 20;

export const title = () => "Inbox";

export async function load({ role, by, machine, cursor }, signal) {
  const query = { role, by, machine, limit: PAGE };
  let page = await call("v1/tasks", { query: { ...query, cursor }, signal });
  const items = [...page.items];
  // A page may be short or empty: those that do not match were left out of it.
  for (let read = 1; items.length === 0 && page.cursor && read < PAGES_MAX; read += 1) {
    page = await call("v1/tasks", { query: { ...query, cursor: page.cursor }, signal });
    items.push(...page.items);
  }
  return { items, cursor: page.cursor };
}

export function draw({ items, cursor }, params, again) {
  const roles = [...new Set([...items.map((each) => each.role), ...[params.role].filter(Boolean)])].sort();
  const me = person();
  return [
    heading("Inbox", el("span", { class: "soft" }, "the most urgent first")),
    el(
      "p",
      { class: "lead" },
      "Decisions that wait for a person. Claim one so that no other person works on it; the decision is an event of its workflow and has your name in the history.",
    ),
    filter(roles, params, me),
    who(me, again),
    table({
      label: "Tasks",
      rows: items,
      key: (row) => row.id,
      empty: params.role || params.by ? "No task matches." : "The inbox is empty: nothing waits for a decision.",
      columns: [
        {
          title: "Task",
          cell: (row) => el("div", { class: "stacked wrap" }, el("strong", {}, row.title), workflowLink(row.workflow)),
        },
        { title: "Role", cell: (row) => chip(row.role) },
        { title: "Machine", cell: (row) => machineLink(row.machine) },
        { title: "Waits since", cell: (row) => moment(row.since) },
        { title: "Due", cell: (row) => row.due_at && [row.overdue && chip("overdue", "bad"), " ", moment(row.due_at)] },
        {
          title: "Claimed by",
          cell: (row) =>
            row.claimed_by &&
            el("div", { class: "stacked wrap" }, row.claimed_by, row.claimed_at && el("span", { class: "soft" }, moment(row.claimed_at))),
        },
        { title: "Decide", cell: (row) => actions(row, again) },
      ],
    }),
    cursor &&
      el(
        "nav",
        { class: "buttons", "aria-label": "Pages of tasks" },
        el(
          "a",
          { class: "button", href: link.page("/inbox", { role: params.role, by: params.by, machine: params.machine, cursor }) },
          "Next page",
        ),
      ),
  ];
}

function filter(roles, params, me) {
  const option = (label, query, chosen) =>
    el("li", {}, el("a", { class: "chip", href: link.page("/inbox", query), "aria-current": chosen && "true" }, label));
  return el(
    "ul",
    { class: "filter", "aria-label": "Only some tasks" },
    option("all", {}, !params.role && !params.by),
    me && option("claimed by me", { by: me }, params.by === me),
    roles.map((role) => option(role, { role }, params.role === role)),
  );
}

// --- Who acts --------------------------------------------------------------------------------------------------------

const PERSON = "interlock-person";

/** The name that is sent with claims and decisions; without one, the key itself acts. */
function person() {
  return sessionStorage.getItem(PERSON) ?? "";
}

function who(me, again) {
  const enter = () =>
    ask({
      title: "Who are you?",
      text: "The name is recorded beside the key in history and the audit log. It is kept in this tab alone; leave it empty to act as the key.",
      field: { label: "Name", maxlength: 100 },
      confirm: "Use this name",
      act: (name) => (name ? sessionStorage.setItem(PERSON, name) : sessionStorage.removeItem(PERSON)),
    }).then(again);
  return el(
    "p",
    { class: "who" },
    el("span", { class: "soft" }, me ? "You act as " : "You act as your key. "),
    me && el("strong", {}, me),
    " ",
    el("button", { type: "button", onclick: enter }, "Change name …"),
  );
}

// --- Acting ----------------------------------------------------------------------------------------------------------

function actions(row, again) {
  const me = person();
  const post = (what, query) => call(at`v1/tasks/${row.id}/${what}`, { method: "POST", query: { by: person(), ...query } }).catch(ended);
  const claim = () =>
    ask({
      title: `Claim: ${row.title}?`,
      text: "Others then see that you work on it. A claim refuses no decision.",
      confirm: "Claim",
      act: () => post("claim"),
    }).then(again);
  const release = (force) => () =>
    ask({
      title: force ? `Take it from ${row.claimed_by}?` : `Release: ${row.title}?`,
      text: force ? `${row.claimed_by} has claimed it. Any person can claim it then.` : "Any person can claim it then.",
      confirm: force ? "Take it away" : "Release",
      act: () => post("release", force ? { force: true } : {}),
    }).then(again);
  const mine = row.claimed_by !== null && (row.claimed_by === me || me === "");
  return el(
    "div",
    { class: "buttons" },
    row.events.map((event) =>
      button(`${event} …`, { about: row.title, scope: "send", key: event, onclick: () => decide(row, event, again) }),
    ),
    row.claimed_by === null
      ? button("Claim …", { about: row.title, scope: "send", onclick: claim })
      : mine
        ? button("Release …", { about: row.title, scope: "send", onclick: release(false) })
        : button("Take away …", { about: row.title, scope: "operate", onclick: release(true) }),
  );
}

/** Decide by one of the task's events, with the fields that its schema has. */
async function decide(row, event, again) {
  const told = await call(at`v1/tasks/${row.id}`).catch((error) => ({ error: withDecision(error) }));
  const me = person();
  const form = told.error ? undefined : formOf(told.forms[event]);
  const other = told.claimed_by && told.claimed_by !== me ? ` ${told.claimed_by} has claimed it: ask them first.` : "";
  const act = async (data) => {
    if (told.error) throw told.error;
    try {
      const headers = { "If-Match": `"${row.version}"` };
      await call(at`v1/workflows/${row.workflow}/events`, { method: "POST", query: { by: me }, headers, body: { event, data } });
    } catch (error) {
      throw error.decided ? withDecision(error) : error.status === 412 ? await conflict({ id: row.workflow, version: row.version }) : error;
    }
  };
  return ask({
    title: `${event}: ${row.title}?`,
    text: `It is sent to ${row.workflow}, with your name.${other}`,
    form,
    confirm: event,
    act,
  }).then(again);
}

function ended(error) {
  throw withDecision(error);
}

/** A task that another person has decided says who, how and when. */
function withDecision(error) {
  const { decided } = error;
  if (!decided) return error;
  error.title = `It is decided already: ${decided.event}${decided.by ? ` by ${decided.by}` : ""}.`;
  error.detail = `${decided.from_state} → ${decided.to_state}, ${absolute(Date.parse(decided.at))}.`;
  error.fix = "Nothing was changed. Close this dialog; the task is gone from the inbox.";
  return error;
}
