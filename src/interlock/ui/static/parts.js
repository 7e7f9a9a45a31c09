// What several pages are built of: tables, states, links, and what is shown when there is nothing or something failed.

import { el } from "./dom.js";

/** The address of a page below the hash, with every value escaped. */
export const link = {
  machine: (name, query = {}) => `#/machines/${encodeURIComponent(name)}${search(query)}`,
  workflow: (id) => `#/workflows/${encodeURIComponent(id)}`,
  page: (path, query = {}) => `#${path}${search(query)}`,
};

function search(query) {
  const given = Object.entries(query)
    .flatMap(([name, value]) => [value].flat().map((each) => [name, each]))
    .filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

export function workflowLink(id) {
  return el("a", { href: link.workflow(id), class: "id" }, id);
}

export function machineLink(name) {
  return el("a", { href: link.machine(name) }, name);
}

/** A part of a page with a title, in a box of its own. */
export function card(title, ...children) {
  return el("section", { class: "card", "data-key": `card ${title}` }, el("h2", {}, title), children);
}

/** Several facts, each with its name. */
export function facts(...pairs) {
  const shown = pairs.filter(Boolean).map(([name, value]) => el("div", { "data-key": name }, el("dt", {}, name), el("dd", {}, value)));
  return el("dl", { class: "facts" }, shown);
}

export function chip(text, look = "plain") {
  return el("span", { class: `chip ${look}` }, text);
}

/** An error text; with a traceback that opens below it. */
export function failure(error, traceback) {
  const text = el("span", { class: "error" }, error);
  return traceback ? el("details", {}, el("summary", {}, text), el("pre", { class: "json", tabindex: "0" }, traceback)) : text;
}

/** The parts of the JSON shape of two contexts that differ. */
export function differences(before, after) {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  return [...names]
    .map((name) => ({ name, old: JSON.stringify(before?.[name]), fresh: JSON.stringify(after?.[name]) }))
    .filter(({ old, fresh }) => old !== fresh)
    .map(({ name, old, fresh }) => el("li", {}, name, ": ", el("del", {}, old ?? "nothing"), " → ", el("ins", {}, fresh ?? "nothing")));
}

export function heading(title, ...aside) {
  return el("div", { class: "heading", "data-key": "heading" }, el("h1", { tabindex: "-1" }, title), ...aside);
}

/** What kind of state it is, in the words and colours of the machine's drawing. */
export function lookOf(machine, name) {
  const state = machine?.states?.find((each) => each.name === name);
  if (!state) return "plain";
  if (state.final) return "final";
  if (state.unwinds_to) return "unwinding";
  if (state.resting) return "resting";
  return state.step ? "step" : "plain";
}

export function stateChip(machine, name) {
  return el("span", { class: `chip ${lookOf(machine, name)}` }, name);
}

/**
 * A table. Columns are {title, cell(row), number}; rows are matched by `key(row)`. It scrolls inside its own box when it is
 * too wide, and the box takes the focus so that the keyboard can scroll it, too. On a telephone each row is a card of its
 * own, with the titles beside the values; roles are written out, since a table that is not laid out as one loses them.
 */
export function table({ label, columns, rows, key, empty }) {
  if (!rows.length) return nothing(empty);
  const head = columns.map(({ title, number }) => el("th", { scope: "col", role: "columnheader", class: number && "number" }, title));
  const body = rows.map((row) =>
    el(
      "tr",
      { role: "row", "data-key": key(row) },
      columns.map((column) => tableCell(column, row)),
    ),
  );
  return el(
    "div",
    { class: "scroll", role: "region", "aria-label": label, tabindex: "0", "data-key": `table ${label}` },
    el(
      "table",
      { role: "table", "aria-label": label },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head)),
      el("tbody", { role: "rowgroup" }, body),
    ),
  );
}

function tableCell({ title, cell, number }, row) {
  return el("td", { role: "cell", class: number && "number", "data-title": title }, cell(row));
}

export function nothing(text) {
  return el("p", { class: "empty" }, text);
}

export function loading() {
  return el("p", { class: "empty", role: "status" }, "Loading …");
}

/** A problem with its three parts: what happened, why, and what to do. */
export function problem(error, retry) {
  const unexpected = error.title === undefined;
  return el(
    "section",
    { class: "problem", role: "alert" },
    el("h2", {}, unexpected ? "This page has failed." : error.title),
    el("p", {}, unexpected ? String(error) : error.detail),
    !unexpected && error.fix && el("p", {}, error.fix),
    error.code && el("p", { class: "soft" }, `code ${error.code}, status ${error.status}`),
    retry && el("p", {}, el("button", { type: "button", onclick: retry }, "Try again")),
  );
}

/** Any JSON value, indented; text stays text. */
export function json(value) {
  return el("pre", { class: "json", tabindex: "0" }, el("code", {}, JSON.stringify(value, null, 2)));
}

/** A listing that was cut off says so. */
export function cutOff(listing) {
  return listing.more && el("p", { class: "soft" }, `Only the first ${listing.items.length} are shown.`);
}
