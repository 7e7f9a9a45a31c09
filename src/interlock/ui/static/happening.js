// The signals of the stream as text, one line each.

import { el } from "./dom.js";
import { workflowLink } from "./parts.js";

const WORDS = {
  transition_applied: ({ workflow, event, from_state: from, to_state: to }) => [
    about(workflow, event),
    soft(from === to ? `in ${to}` : `${from} → ${to}`),
  ],
  transition_rejected: ({ workflow, event, state, guard, code }) => [
    about(workflow, event),
    soft(`refused in ${state}: ${guard ?? code}`),
  ],
  step_attempted: ({ workflow, kind, step, outcome, attempt, error }) => {
    const ended = outcome.replace("_", "-");
    const why = error && error !== ended ? `: ${error}` : "";
    return [about(workflow, `${kind} ${step}`), soft(`attempt ${attempt} ended ${ended}${why}`)];
  },
  breaker_changed: ({ dependency, before, after, reason }) => [
    el("a", { href: "#/breakers" }, `breaker of ${dependency}`),
    soft(` ${before} → ${after}: ${reason}`.replaceAll("_", " ")),
  ],
  alert_raised: ({ summary, resolved }) => [
    el("span", { class: `chip ${resolved ? "good" : "bad"}` }, resolved ? "over" : "alert"),
    soft(` ${summary}`),
  ],
};

/** A successful attempt is shown by its transition; a late result changed nothing. */
export function isWorthTelling(type, data) {
  return Object.hasOwn(WORDS, type) && !(type === "step_attempted" && data.outcome === "done");
}

export function happening(type, data) {
  return WORDS[type](data);
}

function about(workflow, what) {
  return [workflowLink(workflow), " ", el("span", { class: "wire" }, what), " "];
}

function soft(text) {
  return el("span", { class: "soft" }, text);
}
