// The overview: what needs a person, the machines with their counts, the last hours, and what is happening.

import { fillActivity, happening, rate, recent } from "../activity.js";
import { all, call } from "../api.js";
import { el } from "../dom.js";
import { drawing } from "../drawing.js";
import { live } from "../live.js";
import { machine, machines as known } from "../machines.js";
import { heading, link, machineLink, nothing } from "../parts.js";
import { moment, number, several } from "../time.js";
import { loadTrends, trends } from "../trends.js";
import { stalledOf } from "./operations.js";

const TALL = 480;

export const title = () => "Overview";

export async function load(params, signal) {
  const told = await known(signal);
  const names = [...told.keys()];
  // Each on its own: a key that may not see one of them still sees the others.
  const [machines, stalled, compensations, letters, tasks, breakers, hot, charts] = await Promise.all([
    Promise.all(names.map((name) => machine(name, signal))),
    attempt(stalledOf(names, signal)),
    attempt(all("v1/compensations", { signal })),
    attempt(all("v1/dead-letters/groups", { signal })),
    attempt(call("v1/tasks", { query: { limit: 1_000 }, signal })),
    attempt(all("v1/breakers", { signal })),
    attempt(all("v1/contention", { signal })),
    attempt(loadTrends(undefined, params, signal)),
    attempt(fillActivity([...told.values()], signal)),
  ]);
  return { machines, stalled, compensations, letters, tasks, breakers, hot, charts };
}

async function attempt(asked) {
  try {
    return await asked;
  } catch (error) {
    if ([403, 404, 503].includes(error.status)) return { items: null, error };
    throw error;
  }
}

export function draw({ machines, stalled, compensations, letters, tasks, breakers, hot, charts }, params) {
  const open = breakers.items && { ...breakers, items: breakers.items.filter((each) => each.state !== "closed") };
  const flagged = hot.items && { ...hot, items: hot.items.filter((row) => row.flagged) };
  const total = machines.every((each) => each.counts) ? sum(machines.flatMap((each) => Object.values(each.counts))) : null;
  const dead = letters.items && sum(letters.items.map((each) => each.count));
  const overdue = tasks.items?.filter((each) => each.overdue).length;
  return [
    heading("Overview"),
    el(
      "ul",
      { class: "tiles", "aria-label": "In figures" },
      tile("Workflows", number(total), "#/workflows", several(machines.length, "machine")),
      tile("Transitions/s", rate() === null ? "–" : number(rate(), 1), "#/", rateNote()),
      alarm(
        "Dead letters",
        letters,
        "#/dead-letters",
        dead ? `in ${several(letters.items.length, "group")}, wait for a person` : "gave up, wait for a person",
        dead,
      ),
      alarm("Stalled", stalled, "#/stalled", "longer in a state than declared"),
      alarm(
        "Breakers open",
        open || breakers,
        "#/breakers",
        breakers.items && `of ${several(breakers.items.length, "dependency", "dependencies")}`,
      ),
      tasks.items
        ? tile(
            "Inbox",
            number(tasks.items.length) + (tasks.cursor ? "+" : ""),
            "#/inbox",
            overdue ? `${number(overdue)} overdue` : "wait for a decision",
            overdue ? "alarm" : "calm",
          )
        : tile("Inbox", "–", "#/inbox", tasks.error.title),
      alarm("Compensations", compensations, "#/compensations", "undos that are owed"),
      alarm("Hot rows", flagged || hot, "#/hot-rows", "writers wait for each other"),
    ),
    charts.machines?.length > 0 && trends(charts, params, "/"),
    el("div", { class: "columns wide" }, el("div", {}, machines.map(card)), activity()),
  ];
}

function rateNote() {
  return live.status === "live" ? "over the last 10 s" : "known only while live";
}

function tile(name, figure, href, note, look = "") {
  return el(
    "li",
    { "data-key": name },
    el(
      "a",
      { class: `tile ${look}`, href },
      el("span", { class: "figure" }, figure),
      el("span", { class: "name" }, name),
      el("span", { class: "soft" }, note),
    ),
  );
}

function alarm(name, listing, href, note, count = listing.items?.length) {
  if (!listing.items) return tile(name, "–", href, listing.error.title);
  return tile(name, number(count) + (listing.more ? "+" : ""), href, note, count ? "alarm" : "calm");
}

/** The drawing with its counts. One that is tall is made small, with bars beside it; a telephone has bars alone. */
function card(each) {
  const counts = each.counts ?? {};
  const total = sum(Object.values(counts));
  const drawn = drawing(each);
  const tall = drawn !== null && Number(drawn.getAttribute("height")) > TALL;
  const rows = each.states.map(({ name }) =>
    el(
      "li",
      { "data-key": name },
      el("a", { href: link.machine(each.name, { state: name }) }, name),
      el("progress", { max: Math.max(total, 1), value: counts[name] ?? 0, "aria-hidden": "true" }),
      el("span", { class: "number" }, number(counts[name])),
    ),
  );
  return el(
    "section",
    { class: "card", "data-key": each.name },
    el("h2", {}, machineLink(each.name), el("span", { class: "soft" }, each.counts ? `version ${each.version}, ${several(total, "workflow")}` : `version ${each.version}`)),
    el(
      "div",
      { class: tall ? "pair" : "" },
      el("ul", { class: drawn && !tall ? "bars narrow" : "bars" }, rows),
      drawn &&
        el("div", { class: "scroll drawn roomy", role: "region", "aria-label": `The drawn machine ${each.name}`, tabindex: "0" }, drawn),
    ),
  );
}

function activity() {
  const lines = recent().map(({ at, type, data, number: key }) =>
    el("li", { "data-key": key }, moment(new Date(at).toISOString()), " ", happening(type, data)),
  );
  const quiet =
    live.status === "live"
      ? "Nothing has happened since this page was opened."
      : "The event stream is not connected; figures are looked up every few seconds.";
  return el(
    "section",
    { class: "card activity", "data-key": "activity" },
    el("h2", {}, "Activity"),
    lines.length ? el("ol", { tabindex: "0", "aria-label": "Activity" }, lines) : nothing(quiet),
  );
}

function sum(numbers) {
  return numbers.reduce((total, each) => total + each, 0);
}
