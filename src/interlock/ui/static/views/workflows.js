// Workflows: found by an id or a value, filtered and sorted by what is in the address, page by page.
//
// The filter is the address and nothing else: it can be sent, kept as a view, and gone back to. A page of the listing
// starts at a cursor; the address also has the cursors of the pages before, so that there is a way back.

import { at, call } from "../api.js";
import { bulkActions } from "../bulk.js";
import { drawing } from "../drawing.js";
import { el } from "../dom.js";
import { ask, button } from "../forms.js";
import { machine, machines } from "../machines.js";
import { heading, link, lookOf, machineLink, nothing, stateChip, table, workflowLink } from "../parts.js";
import { moment, number, several } from "../time.js";
import { loadTrends, trends } from "../trends.js";
import { keepView, removeView, views } from "../saved.js";

const PAGE = 50;
const TRAIL_MAX = 30;
const FOUND = 10;
const LOOKUPS_MAX = 12;
const OPERATORS = {
  text: ["=", "prefix", "!=", "in"],
  order: ["=", ">=", "<=", ">", "<", "!=", "in"],
  choice: ["=", "!=", "in"],
};
const WORDS = { "=": "is", "!=": "is not", prefix: "begins with", in: "is one of", "<": "<", "<=": "≤", ">": ">", ">=": "≥" };
const KINDS = { str: "text", UUID: "choice", bool: "choice", Enum: "choice" };
const INPUTS = {
  int: { type: "number" },
  float: { type: "number", step: "any" },
  date: { type: "date" },
  datetime: { type: "datetime-local", step: 1 },
};
const FILTERS = ["state", "where", "updated_after", "updated_before", "order"];

export const title = ({ name, q }) => (q ? `Find ${q}` : name ? `Machine ${name}` : "Workflows");

export async function load(params, signal) {
  if (params.q) return { hits: await lookUp(params.q, signal) };
  const { name, query } = params;
  const known = await machines(signal);
  const machineName = name ?? (known.size === 1 ? [...known.keys()][0] : undefined);
  const asked = { machine: machineName, cursor: params.cursor, limit: PAGE };
  for (const each of FILTERS) asked[each] = query.getAll(each);
  const [told, charts, page] = await Promise.all([
    machineName === undefined ? null : machine(machineName, signal),
    name === undefined ? null : loadTrends(name, params, signal).catch(forbidden),
    call("v1/workflows", { query: asked, signal }),
  ]);
  return { told, charts, page, known };
}

/** A key that is limited to some ids may not see figures of all of them. */
function forbidden(error) {
  if (error.status === 403) return null;
  throw error;
}

export function draw({ hits, told, charts, page, known }, params, again) {
  if (hits) return results(hits, params.q);
  const total = Object.values(told?.counts ?? {}).reduce((sum, each) => sum + each, 0);
  const drawn = told && params.name && drawing(told, { chosen: params.state });
  return [
    told && params.name
      ? heading(
          `Machine ${told.name}`,
          el("span", { class: "soft" }, `version ${told.version}`, told.counts && `, ${several(total, "workflow")}`),
        )
      : heading("Workflows"),
    drawn &&
      el("div", { class: "scroll drawn", role: "region", "aria-label": "The drawn machine", tabindex: "0", "data-key": "drawing" }, drawn),
    el("h2", { id: "workflows" }, params.state ? ["Workflows in ", stateChip(told, params.state)] : "Workflows"),
    told && states(told, params),
    filterForm(told, known, params),
    conditions(params),
    savedViews(params, again),
    bulkActions(told, params, again),
    listing(told, page, known, params),
    pages(params, page),
    charts?.machines.length > 0 && trends(charts, params, base(params)),
  ];
}

// --- One box for an id or a value ------------------------------------------------------------------------------------

/** The workflow of that id, or those that have the text in a searchable field. */
async function lookUp(text, signal) {
  const found = [];
  try {
    const one = await call(at`v1/workflows/${text}`, { signal });
    location.replace(link.workflow(one.id));
    return { one };
  } catch (error) {
    if (![400, 403, 404].includes(error.status)) throw error;
    found.trouble = error;
  }
  const known = [...(await machines(signal)).values()];
  const lookups = known
    .flatMap((each) => (each.search ?? []).map((field) => ({ machine: each, field })))
    .filter(({ field }) => field.kind === "str" || field.kind === "UUID" || (field.kind === "int" && /^-?\d+$/.test(text)))
    .slice(0, LOOKUPS_MAX);
  const pages = await Promise.all(
    lookups.map(({ machine: { name }, field }) => {
      const where = field.kind === "str" ? `${field.name} prefix ${JSON.stringify(text)}` : `${field.name}=${text}`;
      return call("v1/workflows", { query: { machine: name, where, limit: FOUND }, signal }).catch((error) => {
        if (error.status === 400) return { items: [] }; // Not a value of the field, for example no UUID.
        throw error;
      });
    }),
  );
  lookups.forEach((each, index) => pages[index].items.length && found.push({ ...each, page: pages[index], text }));
  found.fields = lookups.map(({ machine: { name }, field }) => `${name}.${field.name}`);
  return found;
}

function results(hits, text) {
  if (hits.one) return [heading("Workflows"), nothing("Opening the workflow …")];
  const groups = hits.map(({ machine: told, field, page }) => {
    const sign = field.kind === "str" ? " prefix " : "=";
    const every = link.machine(told.name, { where: `${field.name}${sign}${field.kind === "str" ? JSON.stringify(text) : text}` });
    return el(
      "section",
      { class: "card", "data-key": `${told.name} ${field.name}` },
      el(
        "h2",
        {},
        `${told.name}: ${field.name} ${field.kind === "str" ? "begins with" : "is"} `,
        el("code", {}, text),
        el("a", { href: every }, page.cursor ? "all of them" : "as a filter"),
      ),
      table({
        label: `${told.name} by ${field.name}`,
        rows: page.items,
        key: (row) => row.id,
        empty: "",
        columns: columnsOf(told, new Map()),
      }),
    );
  });
  const looked = hits.fields.length
    ? `Looked at ids, and at the fields ${hits.fields.join(", ")}.`
    : "No machine here declares searchable fields (search=), so only ids can be found.";
  return [
    heading(`Find ${text}`),
    el("p", { class: "lead" }, looked),
    groups.length
      ? groups
      : el(
          "section",
          { class: "problem", role: "alert" },
          el("h2", {}, `Nothing has the id or value ${text}.`),
          el("p", {}, hits.trouble.title),
          el("p", {}, el("a", { href: "#/workflows" }, "Filter all workflows")),
        ),
  ];
}

// --- The filter ------------------------------------------------------------------------------------------------------

function base({ name }) {
  return name ? `/machines/${encodeURIComponent(name)}` : "/workflows";
}

/** The address of the same listing with some parameters changed; it begins at its first page. */
function changed(params, changes) {
  const given = Object.fromEntries(FILTERS.map((each) => [each, params.query.getAll(each)]));
  return link.page(base(params), { ...given, ...changes });
}

function states(told, params) {
  const option = (state, label, count) =>
    el(
      "li",
      {},
      el(
        "a",
        {
          href: changed(params, { state }),
          class: `chip ${state ? lookOf(told, state) : "plain"}`,
          "aria-current": (state ?? null) === (params.state ?? null) && "true",
        },
        label,
        count !== undefined && el("span", { class: "number" }, number(count)),
      ),
    );
  return el(
    "ul",
    { class: "filter", "aria-label": "Only workflows in one state" },
    option(null, "all"),
    told.states.map((state) => option(state.name, state.name, told.counts?.[state.name])),
  );
}

function filterForm(told, known, params) {
  const machineField = labelled(
    "Machine",
    select("machine", [["", "all"], ...[...known.keys()].map((each) => [each, each])], params.name ?? "", ({ currentTarget }) => {
      location.hash = currentTarget.value ? link.machine(currentTarget.value) : "#/workflows";
    }),
  );
  if (!told) {
    return el(
      "form",
      { class: "query", "data-own": true, "data-key": `query ${location.hash}` },
      machineField,
      el("span", { class: "soft" }, "Choose a machine to search by its fields, times and order."),
    );
  }
  if (told.search === null) {
    const why = el(
      "span",
      { class: "soft" },
      "This machine declares nothing searchable: ",
      el("code", {}, "Machine(search=…)"),
      " adds fields, times and order.",
    );
    return el("form", { class: "query", "data-own": true, "data-key": `query ${location.hash}` }, machineField, why);
  }
  const rows = el("div", { class: "where" });
  const order = [
    ["", "creation, oldest first"],
    ["-created_at", "creation, newest first"],
    ["-updated_at", "last move, newest first"],
    ["updated_at", "last move, oldest first"],
  ];
  for (const { name } of told.search) order.push([name, `${name}, ascending`], [`-${name}`, `${name}, descending`]);
  const submit = (event) => {
    event.preventDefault();
    const form = event.currentTarget;
    const added = [...rows.children].map((row) => row.read()).filter(Boolean);
    const time = (name) => (form.elements[name].value ? new Date(form.elements[name].value).toISOString() : "");
    location.hash = changed(params, {
      where: [...params.query.getAll("where"), ...added],
      updated_after: time("updated_after"),
      updated_before: time("updated_before"),
      order: form.elements.order.value,
    });
  };
  const add = () => rows.append(conditionRow(told.search));
  if (told.search.length) add();
  return el(
    "form",
    { class: "query", onsubmit: submit, "data-own": true, "data-key": `query ${location.hash}`, "aria-label": "Filter" },
    machineField,
    rows,
    labelled("Moved after", el("input", { type: "datetime-local", step: 1, name: "updated_after", value: local(params.updated_after) })),
    labelled("and before", el("input", { type: "datetime-local", step: 1, name: "updated_before", value: local(params.updated_before) })),
    labelled("Sort by", select("order", order, params.order ?? "")),
    el(
      "div",
      { class: "buttons" },
      el("button", { type: "submit", class: "main" }, "Apply"),
      told.search.length > 1 && el("button", { type: "button", onclick: add }, "Add condition"),
    ),
  );
}

function labelled(text, input) {
  return el("label", {}, el("span", { class: "soft" }, text), input);
}

function select(name, options, chosen, onchange) {
  return el(
    "select",
    { name, onchange },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)),
  );
}

/** One condition: field, operator and value, each of the kind of the one before. */
function conditionRow(fields) {
  const field = select(
    "field",
    fields.map(({ name }) => [name, name]),
    "",
  );
  const sign = el("select", { "aria-label": "Operator" });
  field.setAttribute("aria-label", "Field");
  const place = el("span", {});
  const kindOf = () => fields.find(({ name }) => name === field.value);
  const refresh = () => {
    const { kind } = kindOf();
    sign.replaceChildren(...OPERATORS[KINDS[kind] ?? "order"].map((each) => el("option", { value: each }, WORDS[each])));
    renew();
  };
  const renew = () => place.replaceChildren(valueInput(kindOf(), sign.value));
  field.onchange = refresh;
  sign.onchange = renew;
  refresh();
  const row = el("div", { class: "condition", role: "group", "aria-label": "Condition" }, field, sign, place);
  row.read = () => written(kindOf(), sign.value, place.firstChild.value);
  return row;
}

function valueInput({ kind, values }, sign) {
  const label = { "aria-label": "Value", autocomplete: "off", spellcheck: "false" };
  if (sign === "in") return el("input", { ...label, placeholder: "one, another" });
  const options = kind === "bool" ? ["true", "false"] : values;
  if (options)
    return el(
      "select",
      label,
      ["", ...options].map((each) => el("option", { value: each }, each || "–")),
    );
  return el("input", { ...label, ...INPUTS[kind], placeholder: "value" });
}

/** A condition as the server reads it; empty fields are no condition. */
function written({ name, kind }, sign, value) {
  if (value === "") return null;
  const space = /\w/.test(sign) ? ` ${sign} ` : sign;
  if (sign === "in") return `${name}${space}${value}`;
  const text = kind === "datetime" ? new Date(value).toISOString() : value;
  // In quotes, so that a text that looks like JSON stays that text.
  return `${name}${space}${kind === "str" && /^["[]|^null$|^\s|\s$/.test(text) ? JSON.stringify(text) : text}`;
}

function local(text) {
  const time = Date.parse(text ?? "");
  if (Number.isNaN(time)) return "";
  return new Date(time - new Date(time).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** What the filter is, each with a link that removes it. */
function conditions(params) {
  const where = params.query.getAll("where");
  const without = (text, href) =>
    el("li", { "data-key": text }, el("a", { class: "chip step", href, "aria-label": `Remove the condition ${text}` }, text, " ×"));
  const shown = [
    ...where.map((text) => without(text, changed(params, { where: where.filter((each) => each !== text) }))),
    params.updated_after && without(`moved after ${params.updated_after}`, changed(params, { updated_after: "" })),
    params.updated_before && without(`moved before ${params.updated_before}`, changed(params, { updated_before: "" })),
    params.order && without(`sorted by ${params.order}`, changed(params, { order: "" })),
  ].filter(Boolean);
  return shown.length > 0 && el("ul", { class: "filter", "aria-label": "Conditions" }, shown);
}

function savedViews(params, again) {
  const kept = views();
  const keep = () =>
    ask({
      title: "Save this view?",
      text: "Its filter and order are kept in this browser, under a name.",
      field: { label: "Name", required: true, maxlength: 60 },
      confirm: "Save",
      act: (name) => keepView(name, changed(params, {})),
    }).then(again);
  const remove = (name) => () => ask({ title: `Remove the view ${name}?`, confirm: "Remove", act: () => removeView(name) }).then(again);
  return el(
    "div",
    { class: "views", "data-key": "views" },
    kept.length > 0 &&
      el(
        "ul",
        { class: "filter", "aria-label": "Saved views" },
        kept.map(({ name, hash }) =>
          el(
            "li",
            { "data-key": name },
            el("a", { class: "chip", href: hash }, name),
            el("button", { type: "button", class: "small", "aria-label": `Remove the view ${name}`, onclick: remove(name) }, "×"),
          ),
        ),
      ),
    button("Save view …", { onclick: keep }),
  );
}

// --- The listing -----------------------------------------------------------------------------------------------------

function columnsOf(told, known) {
  const fields = (told?.search ?? []).slice(0, 4);
  return [
    { title: "Workflow", cell: (row) => workflowLink(row.id) },
    !told && { title: "Machine", cell: (row) => machineLink(row.machine) },
    { title: "State", cell: (row) => stateChip(told ?? known.get(row.machine), row.state) },
    ...fields.map(({ name, stored }) => ({ title: name, cell: (row) => plain(row.context?.[stored]) })),
    { title: "Version", number: true, cell: (row) => number(row.version) },
    { title: "Updated", cell: (row) => moment(row.updated_at) },
    { title: "Created", cell: (row) => moment(row.created_at) },
    {
      title: "Waits for",
      cell: (row) =>
        row.waiting ? el("span", { class: "error" }, row.waiting) : row.paused && el("span", { class: "chip warn" }, "paused"),
    },
  ].filter(Boolean);
}

function plain(value) {
  if (value === null || value === undefined) return null;
  return el("span", { class: "value" }, typeof value === "object" ? JSON.stringify(value) : String(value));
}

function listing(told, page, known, params) {
  const filtered = FILTERS.some((each) => each !== "order" && params.query.get(each));
  const none = told ? "There is no workflow of this machine yet." : "There is no workflow yet.";
  return table({
    label: "Workflows",
    rows: page.items,
    key: (row) => row.id,
    empty: filtered
      ? params.state && !params.query.get("where")
        ? `No workflow is in ${params.state}.`
        : "No workflow matches the filter."
      : none,
    columns: columnsOf(told, known),
  });
}

function pages(params, page) {
  const trail = params.query.getAll("trail");
  const { cursor } = params;
  if (!cursor && !page.cursor) return null;
  const before = trail.at(-1);
  return el(
    "nav",
    { class: "buttons", "aria-label": "Pages of workflows", "data-key": "pages" },
    cursor && el("a", { class: "button", href: changed(params, {}) }, "First page"),
    cursor &&
      el(
        "a",
        {
          class: "button",
          rel: "prev",
          href: changed(params, before === undefined ? {} : { cursor: before, trail: trail.slice(0, -1) }),
        },
        "Previous page",
      ),
    page.cursor &&
      el(
        "a",
        {
          class: "button",
          rel: "next",
          href: changed(params, { cursor: page.cursor, trail: cursor ? [...trail, cursor].slice(-TRAIL_MAX) : [] }),
        },
        "Next page",
      ),
  );
}
