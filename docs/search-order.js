// How Sphinx's search orders its results: pages that do a task come before reference, and reference before decisions.
var Scorer = {
  folders: { "how-to": 6, tutorial: 4, reference: 0, explanation: 0, decisions: -6 },
  score: ([page, title, , , score]) => {
    const query = (new URLSearchParams(window.location.search).get("q") || "").trim().toLowerCase();
    const first = query !== "" && title.toLowerCase().startsWith(query) ? 10 : 0;
    return score + (Scorer.folders[page.split("/")[0]] || 0) + first;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
