// Questions to the person at the screen, and what became of an action. Dialogs live outside the part that refreshes.

import { el, show } from "./dom.js";
import { problem } from "./parts.js";

/**
 * Ask before something is done. `act` gets the text that was entered, if `field` is given; when it fails, the dialog
 * stays open with the problem, so that nothing typed is lost. Resolves to true when it was done.
 */
export function ask({ title, text, field, confirm, act }) {
  return new Promise((resolve) => {
    const trouble = el("div", {});
    const input = field && el(field.secret ? "input" : "textarea", fieldAttributes(field));
    const submit = el("button", { type: "submit", class: "main" }, confirm);
    const send = async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        await act(input ? input.value.trim() : "");
        close(true);
      } catch (error) {
        show(trouble, problem(error));
        submit.disabled = false;
      }
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
        trouble,
        el("div", { class: "buttons" }, el("button", { type: "button", onclick: () => close(false) }, "Cancel"), submit),
      ),
    );
    const close = (done) => {
      dialog.close();
      dialog.remove();
      resolve(done);
    };
    dialog.addEventListener("cancel", (event) => (event.preventDefault(), close(false)));
    document.getElementById("dialogs").append(dialog);
    dialog.showModal();
  });
}

function fieldAttributes({ secret, required, maxlength }) {
  const both = { id: "dialog-field", required, maxlength, autofocus: true, spellcheck: "false" };
  return secret ? { ...both, type: "password", autocomplete: "off" } : { ...both, rows: 3 };
}
