// Rows and workflows that writers contend for, worst first.

import { all } from "../api.js";
import { el } from "../dom.js";
import { heading, table, workflowLink } from "../parts.js";
import { number } from "../time.js";

export const title = () => "Hot rows";

export const load = (_, signal) => all("v1/contention", { signal });

export function draw(found) {
  return [
    heading("Hot rows"),
    el("p", { class: "lead" }, "A write that has to wait for another one of the same row is a hand-off. Many writes to different rows are not."),
    table({
      label: "Hot rows",
      rows: found.items,
      key: (row) => JSON.stringify([row.database, row.source, row.table, row.key]),
      empty: "Nothing is hot: no writer was seen to wait for another one of the same row.",
      columns: [
        { title: "Hot", cell: (row) => row.flagged && el("span", { class: "chip warn" }, "hot") },
        { title: "Database", cell: (row) => row.database },
        { title: "Table or machine", cell: (row) => row.table },
        { title: "Key", cell: (row) => keyOf(row) },
        { title: "Hand-offs/s", number: true, cell: (row) => number(row.handoffs_per_s, 1) },
        { title: "Conflicts/s", number: true, cell: (row) => number(row.conflicts_per_s, 1) },
        { title: "Writes/s", number: true, cell: (row) => number(row.writes_per_s, 1) },
        { title: "Mean wait", number: true, cell: (row) => `${number(row.wait_s * 1000, 2)} ms` },
        { title: "Seen by", cell: (row) => row.source },
      ],
    }),
  ];
}

function keyOf(row) {
  if (row.source === "workflow" && typeof row.key === "string") return workflowLink(row.key);
  return el("code", {}, typeof row.key === "string" ? row.key : JSON.stringify(row.key));
}
