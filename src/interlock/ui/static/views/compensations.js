// Pending undos: running, waiting for their turn, being retried, or dead.

import { all } from "../api.js";
import { el } from "../dom.js";
import { cutOff, heading, machineLink, table, workflowLink } from "../parts.js";
import { number } from "../time.js";

const LOOKS = { dead: "bad", retrying: "warn", running: "good", waiting: "plain" };

export const title = () => "Compensations";

export const load = (_, signal) => all("v1/compensations", { signal });

export function draw(found) {
  return [
    heading("Compensations"),
    el(
      "p",
      { class: "lead" },
      "Undos that unwinding workflows still have to run. One that is dead waits for a person: see the ",
      el("a", { href: "#/dead-letters" }, "dead letters"),
      ".",
    ),
    table({
      label: "Compensations",
      rows: found.items,
      key: (row) => row.key,
      empty: "Nothing is owed: no workflow has an undo left to run.",
      columns: [
        { title: "Workflow", cell: (row) => workflowLink(row.workflow) },
        { title: "Machine", cell: (row) => machineLink(row.machine) },
        { title: "Undoes step", cell: (row) => row.step },
        { title: "State", cell: (row) => el("span", { class: `chip ${LOOKS[row.state] ?? "plain"}` }, row.state) },
        { title: "Attempts", number: true, cell: (row) => number(row.attempts) },
        { title: "Key", cell: (row) => el("code", {}, row.key) },
        { title: "Key of what it undoes", cell: (row) => el("code", {}, row.undoes) },
      ],
    }),
    cutOff(found),
  ];
}
