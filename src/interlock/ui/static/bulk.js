// Doing the same to many workflows: a dialog that begins with a dry run, and buttons for what a filter finds.

import { at, call } from "./api.js";
import { el } from "./dom.js";
import { ask, button, formOf } from "./forms.js";
import { link } from "./parts.js";
import { number, several } from "./time.js";

const EXAMPLES = 5;

/**
 * Ask for a run: its dry run has to be looked at first. `form` adds to the body. Once it has begun, its own page shows
 * the progress; it goes on without this page.
 */
export function startBulk({ title, text, body, form }) {
  const stamp = new Date().toISOString().slice(0, 19).replace("T", " ");
  const name = el("input", {
    id: "bulk-name",
    required: true,
    maxlength: 150,
    value: `${body.action} ${body.machine} ${stamp}`,
    pattern: "[^\\/]+",
  });
  const node = el(
    "div",
    { class: "fields" },
    form?.node,
    el(
      "div",
      { class: "field" },
      el(
        "label",
        { for: "bulk-name" },
        "Name of the run ",
        el("span", { class: "soft" }, "for the audit log; the same name goes on with it"),
      ),
      name,
    ),
  );
  const read = () => ({ name: name.value.trim(), body: { ...body, ...form?.read() } });
  const send = (value, query) => call(at`v1/bulk/${value.name}`, { method: "POST", query, body: value.body });
  return ask({
    title,
    text,
    form: { node, read },
    checkFirst: true,
    checkLabel: "Dry run",
    check: async (value) => planned(await send(value, { dry_run: true }), body.action),
    confirm: "Start",
    act: async (value) => {
      await send(value);
      location.hash = link.page(`/bulk/${encodeURIComponent(value.name)}`);
    },
  });
}

/** What a dry run has found. */
function planned(plan, action) {
  const things = action === "retry" ? "dead letter" : "workflow";
  return [
    el("p", {}, el("strong", {}, number(plan.moving)), ` of ${several(plan.matching, things)} that match would be ${DONE[action]}.`),
    refusals(plan),
  ];
}

export const DONE = { send: "moved", retry: "tried again", pause: "paused", resume: "resumed" };

/** The reasons why some are left as they are, with examples. */
export function refusals({ refused = {}, examples = {} }) {
  const reasons = Object.entries(refused);
  if (reasons.length === 0) return null;
  return el(
    "ul",
    { class: "refusals", "aria-label": "Refused" },
    reasons.map(([reason, count]) =>
      el(
        "li",
        { "data-key": reason },
        el("strong", {}, number(count)),
        ` refused: ${reason} `,
        (examples[reason] ?? []).slice(0, EXAMPLES).map((id) => [el("a", { href: link.workflow(id), class: "id" }, id), " "]),
      ),
    ),
  );
}

/** Buttons for all workflows that a filter finds. */
export function bulkActions(told, params, again) {
  if (!told) return null;
  const filter = {
    machine: told.name,
    state: params.state,
    where: params.query.getAll("where"),
    updated_after: params.updated_after,
    updated_before: params.updated_before,
  };
  const given = Object.fromEntries(Object.entries(filter).filter(([, value]) => value && value.length));
  const which = filterWords(given);
  const begin = (action, label, form) => () =>
    startBulk({
      title: `${label}: ${which}?`,
      text: "A dry run says first what would happen. It changes nothing.",
      body: { ...given, action },
      form: form?.(),
    }).then(again);
  const note = () => formOf({ properties: { note: { type: "string", title: "note", maxLength: 1_000 } } });
  return el(
    "div",
    { class: "buttons bulk", role: "group", "aria-label": "For all workflows of this filter", "data-key": "bulk" },
    el("span", { class: "soft" }, "For all of them:"),
    button("Send an event …", { about: which, scope: "operate", onclick: begin("send", "Send an event", () => eventForm(told)) }),
    button("Retry dead letters …", { about: which, scope: "operate", onclick: begin("retry", "Retry dead letters") }),
    button("Pause …", { about: which, scope: "operate", key: "Pause all", onclick: begin("pause", "Pause", note) }),
    button("Resume …", { about: which, scope: "operate", key: "Resume all", onclick: begin("resume", "Resume", note) }),
  );
}

function filterWords({ machine, state, where = [], updated_after: after, updated_before: before }) {
  const parts = [state && `in ${state}`, ...where, after && `moved after ${after}`, before && `moved before ${before}`].filter(Boolean);
  return `workflows of ${machine}${parts.length ? ` ${parts.join(", ")}` : ""}`;
}

/** An event of the machine, and the fields of the one that is chosen. */
function eventForm(told) {
  const choice = el(
    "select",
    { id: "bulk-event", onchange: () => renew() },
    told.events.map(({ name }) => el("option", { value: name }, name)),
  );
  const place = el("div", {});
  let form = null;
  const renew = () => {
    form = formOf(told.events.find(({ name }) => name === choice.value).schema);
    place.replaceChildren(form.node);
  };
  renew();
  const node = el("div", { class: "fields" }, el("div", { class: "field" }, el("label", { for: "bulk-event" }, "Event"), choice), place);
  return { node, read: () => ({ event: choice.value, data: form.read() }) };
}
