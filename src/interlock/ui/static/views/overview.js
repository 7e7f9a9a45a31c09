// The overview: workflows per state, what needs a person, and recent activity.

import { rate, recent } from "../activity.js";
import { all } from "../api.js";
import { el } from "../dom.js";
import { happening } from "../happening.js";
import { live } from "../live.js";
import { machine, machines as known } from "../machines.js";
import { heading, link, machineLink, nothing } from "../parts.js";
import { moment, number, several } from "../time.js";
import { stalledOf } from "./stalled.js";

export const title = () => "Overview";

export async function load(_, signal) {
  const names = [...(await known(signal)).keys()];
  // Each on its own: a key that may not see one of them still sees the others.
  const [machines, stalled, compensations, letters, breakers, hot] = await Promise.all([
    Promise.all(names.map((name) => machine(name, signal))),
    attempt(stalledOf(names, signal)),
    attempt(all("v1/compensations", { signal })),
    attempt(all("v1/dead-letters", { signal })),
    attempt(all("v1/breakers", { signal })),
    attempt(all("v1/contention", { signal })),
  ]);
  return { machines, stalled, compensations, letters, breakers, hot };
}

async function attempt(asked) {
  try {
    return await asked;
  } catch (error) {
    if (error.status === 403 || error.status === 404) return { items: null, error };
    throw error;
  }
}

export function draw({ machines, stalled, compensations, letters, breakers, hot }) {
  const open = breakers.items && { ...breakers, items: breakers.items.filter((each) => each.state !== "closed") };
  const flagged = hot.items && { ...hot, items: hot.items.filter((row) => row.flagged) };
  const total = sum(machines.flatMap((each) => Object.values(each.counts ?? {})));
  return [
    heading("Overview"),
    el(
      "ul",
      { class: "tiles", "aria-label": "In figures" },
      tile("Workflows", number(total), "#/", several(machines.length, "machine")),
      tile("Transitions/s", rate() === null ? "–" : number(rate(), 1), "#/", rateNote()),
      alarm("Stalled", stalled, "#/stalled", "longer in a state than declared"),
      alarm("Compensations", compensations, "#/compensations", "undos that are owed"),
      alarm("Dead letters", letters, "#/dead-letters", "gave up, wait for a person"),
      alarm("Breakers open", open || breakers, "#/breakers", breakers.items && `of ${several(breakers.items.length, "dependency", "dependencies")}`),
      alarm("Hot rows", flagged || hot, "#/hot-rows", "writers wait for each other"),
    ),
    el("div", { class: "columns" }, el("div", {}, machines.map(card)), activity()),
  ];
}

function rateNote() {
  return live.status === "live" ? "over the last 10 s" : "known only while live";
}

function tile(name, figure, href, note, look = "") {
  return el(
    "li",
    {},
    el("a", { class: `tile ${look}`, href }, el("span", { class: "figure" }, figure), el("span", { class: "name" }, name), el("span", { class: "soft" }, note)),
  );
}

function alarm(name, listing, href, note) {
  if (!listing.items) return tile(name, "–", href, listing.error.title);
  const figure = number(listing.items.length) + (listing.more ? "+" : "");
  return tile(name, figure, href, note, listing.items.length ? "alarm" : "calm");
}

function card(each) {
  const counts = each.counts ?? {};
  const total = sum(Object.values(counts));
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
    el("h2", {}, machineLink(each.name), el("span", { class: "soft" }, `version ${each.version}, ${several(total, "workflow")}`)),
    el("ul", { class: "bars" }, rows),
  );
}

function activity() {
  const lines = recent().map(({ at, type, data, number: key }) =>
    el("li", { "data-key": key }, moment(new Date(at).toISOString()), " ", happening(type, data)),
  );
  const quiet = live.status === "live" ? "Nothing has happened since this page was opened." : "The event stream is not connected; figures are looked up every few seconds.";
  return el(
    "section",
    { class: "card activity", "data-key": "activity" },
    el("h2", {}, "Activity"),
    lines.length ? el("ol", {}, lines) : nothing(quiet),
  );
}

function sum(numbers) {
  return numbers.reduce((total, each) => total + each, 0);
}
