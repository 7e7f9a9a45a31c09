// Questions to the person at the screen: dialogs, buttons that know their scope, and forms made from a JSON schema.
//
// Dialogs live outside the part that refreshes, so that nothing typed is lost while the page goes on.

import { lacks } from "./api.js";
import { el, show } from "./dom.js";
import { problem } from "./parts.js";

const LONG_TEXT = /note|reason|comment|text|message|description/i;

/**
 * Ask before something is done. `act` gets what was entered: the text of `field`, or the value of `form` ({node, read}).
 * With `check`, its answer is shown first; `checkFirst` keeps the confirming button disabled until then. When `act`
 * fails, the dialog stays open with the problem. Resolves to true when it was done.
 */
export function ask({ title, text, field, form, confirm, act, check, checkLabel = "Check", checkFirst = false }) {
  return new Promise((resolve) => {
    const result = el("div", { class: "result", role: "status" });
    const input = field && el(field.secret ? "input" : "textarea", fieldAttributes(field));
    const submit = el("button", { type: "submit", class: "main", disabled: checkFirst }, confirm);
    const read = () => (form ? form.read() : input ? input.value.trim() : "");
    const attempt = async (button, what) => {
      button.disabled = true;
      try {
        await what(read());
      } catch (error) {
        show(result, problem(error));
      } finally {
        button.disabled = false;
      }
    };
    const send = (event) => {
      event.preventDefault();
      attempt(submit, async (value) => {
        await act(value);
        close(true);
      });
    };
    let edits = 0;
    const examine = ({ currentTarget: button }) => {
      if (!button.form.reportValidity()) return;
      const before = edits;
      attempt(button, async (value) => {
        const found = await check(value);
        if (edits !== before) return; // The answer is about what was there before.
        show(result, found);
        submit.disabled = false;
      });
    };
    const dialog = el(
      "dialog",
      { "aria-labelledby": "dialog-title" },
      el(
        "form",
        { onsubmit: send },
        el("h2", { id: "dialog-title" }, title),
        text && el("p", {}, text),
        input && el("label", { for: "dialog-field" }, field.label),
        input,
        form?.node,
        result,
        el(
          "div",
          { class: "buttons" },
          el("button", { type: "button", onclick: () => close(false) }, confirm === null ? "Close" : "Cancel"),
          check && el("button", { type: "button", onclick: examine }, checkLabel),
          confirm !== null && submit,
        ),
      ),
    );
    const close = (done) => {
      dialog.close();
      dialog.remove();
      resolve(done);
    };
    // A result is about what was checked, and nothing that was typed since.
    if (checkFirst) dialog.addEventListener("input", () => ((edits += 1), (submit.disabled = true), show(result)));
    dialog.addEventListener("cancel", (event) => (event.preventDefault(), close(false)));
    document.getElementById("dialogs").append(dialog);
    dialog.showModal();
  });
}

/** Something to read, in a dialog. */
export function tell(title, ...children) {
  return ask({ title, form: { node: el("div", {}, children), read: () => null }, confirm: null, act: () => null });
}

function fieldAttributes({ secret, required, maxlength, value }) {
  const both = { id: "dialog-field", required, maxlength, autofocus: true, spellcheck: "false", value };
  return secret ? { ...both, type: "password", autocomplete: "off" } : { ...both, rows: 3 };
}

/**
 * A button that asks first. Where the key lacks the scope, or `refused` says why it is not possible, it stays reachable
 * by keyboard and explains itself instead of acting.
 */
export function button(label, { about = "", scope, refused, main = false, key, onclick }) {
  const why = refused ?? (scope ? lacks(scope) : null);
  return el(
    "button",
    {
      type: "button",
      class: main && why === null ? "main" : "",
      "aria-label": about ? `${label.replace(/ …$/, "")}: ${about}` : null,
      "aria-disabled": why !== null && "true",
      title: why,
      "data-key": key ?? label,
      onclick: why === null ? onclick : () => tell(`Not possible: ${label.replace(/ …$/, "")}`, el("p", {}, why)),
    },
    label,
  );
}

// --- Forms from a JSON schema ----------------------------------------------------------------------------------------

/** Fields for the members of an object's schema. `read` returns the object; it throws what a person can correct. */
export function formOf(schema, values = {}) {
  const root = resolve(schema, schema);
  const required = new Set(root.required ?? []);
  const fields = Object.entries(root.properties ?? {}).map(([name, part], index) =>
    fieldOf(name, resolve(part, schema), {
      required: required.has(name),
      id: `form-${index}`,
      value: values[name],
      first: index === 0,
    }),
  );
  return {
    fields: fields.length,
    required: required.size,
    node: el(
      "div",
      { class: "fields" },
      fields.map((field) => field.node),
    ),
    read: () => Object.fromEntries(fields.map((field) => [field.name, field.read()]).filter(([, value]) => value !== undefined)),
  };
}

/** The schema behind references; what may also be null is marked, and said by its other half. */
function resolve(part, root) {
  let found = part;
  while (found.$ref) found = { ...root.$defs?.[found.$ref.replace("#/$defs/", "")], ...found, $ref: undefined };
  const halves = found.anyOf ?? found.oneOf;
  if (halves?.some((half) => half.type === "null")) {
    const others = halves.filter((half) => half.type !== "null");
    if (others.length === 1) return { ...found, ...resolve(others[0], root), default: found.default, nullable: true };
  }
  return found;
}

function fieldOf(name, schema, { required, id, value, first }) {
  const [input, parse] = inputOf(schema, required);
  input.id = id;
  if (first) input.autofocus = true;
  // A text may be empty, which is a value; anything else that is empty is none.
  const empty = schema.type === "string" && !schema.enum && !schema.format && !schema.minLength;
  input.required = required && !empty && !schema.nullable;
  if (value !== undefined && value !== null) input.value = typeof value === "object" ? JSON.stringify(value) : String(value);
  const read = () => {
    if (input.value !== "") return parse(input.value, name);
    if (!required) return undefined;
    return schema.nullable ? null : parse("", name);
  };
  const facts = [
    schema.description,
    required
      ? null
      : schema.default === undefined || schema.default === null
        ? "optional"
        : `optional, else ${JSON.stringify(schema.default)}`,
  ];
  const hint = facts.filter(Boolean).join("; ");
  const node = el("div", { class: "field" }, el("label", { for: id }, name, hint && el("span", { class: "soft" }, ` ${hint}`)), input);
  return { name, node, read };
}

function inputOf(schema, required) {
  const kinds = schema.const === undefined ? schema.enum : [schema.const];
  if (kinds) return [select(kinds, required), (text) => kinds.find((each) => String(each) === text)];
  if (schema.type === "boolean") return [select([true, false], required), (text) => text === "true"];
  if (schema.type === "integer") return [el("input", { inputmode: "numeric", pattern: "-?[0-9]+", title: "a whole number" }), wholeNumber];
  if (schema.type === "number") return [el("input", { type: "number", step: "any", min: schema.minimum, max: schema.maximum }), Number];
  if (schema.type === "string" && schema.format === "date") return [el("input", { type: "date" }), String];
  if (schema.type === "string" && schema.format === "date-time")
    return [el("input", { type: "datetime-local", step: 1 }), (text) => new Date(text).toISOString()];
  if (schema.type === "string") {
    const attributes = { maxlength: schema.maxLength, minlength: schema.minLength, spellcheck: "false", autocomplete: "off" };
    const long = LONG_TEXT.test(schema.title ?? "") || (schema.maxLength ?? 0) > 200;
    return [long ? el("textarea", { ...attributes, rows: 3 }) : el("input", attributes), String];
  }
  return [el("textarea", { rows: 3, placeholder: "JSON", spellcheck: "false" }), parseJson];
}

function select(values, required) {
  const options = values.map((value) => el("option", { value: String(value) }, String(value)));
  return el("select", {}, !required && el("option", { value: "" }, "–"), options);
}

function wholeNumber(text) {
  const value = Number(text);
  return Number.isSafeInteger(value) || !JSON.rawJSON ? value : JSON.rawJSON(text);
}

function parseJson(text, name) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw Object.assign(new Error(), {
      title: `${name} is not JSON.`,
      detail: String(error.message),
      fix: 'Write for example ["a", "b"] or {"n": 1}.',
    });
  }
}
