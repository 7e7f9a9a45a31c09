// The page itself: routing to views, refreshing, and the tools in the header.

import { forgetActivity } from "./activity.js";
import { forgetViewer, key, loadViewer } from "./api.js";
import { el, show } from "./dom.js";
import { ask } from "./forms.js";
import { help, listenForKeys } from "./keyboard.js";
import { hearAnswer, live, reconnect, startLive } from "./live.js";
import { forgetMachines } from "./machines.js";
import { link, loading, nothing, problem } from "./parts.js";
import { keepTicking } from "./time.js";
import * as letters from "./views/letters.js";
import { breakers, bulk, compensations, hot, schedules, stalled } from "./views/operations.js";
import * as overview from "./views/overview.js";
import * as tasks from "./views/tasks.js";
import * as workflow from "./views/workflow.js";
import * as workflows from "./views/workflows.js";

const ROUTES = [
  [/^\/$/, overview],
  [/^\/machines\/(?<name>[^/]+)$/, workflows],
  [/^\/(?:workflows|find)$/, workflows],
  [/^\/workflows\/(?<id>[^/]+)$/, workflow],
  [/^\/stalled$/, stalled],
  [/^\/compensations$/, compensations],
  [/^\/dead-letters$/, letters],
  [/^\/breakers$/, breakers],
  [/^\/hot-rows$/, hot],
  [/^\/schedules$/, schedules],
  [/^\/inbox$/, tasks],
  [/^\/bulk$/, bulk],
  [/^\/bulk\/(?<run>[^/]+)$/, bulk],
];
const PAGES = [
  ["o", "#/", "Overview"],
  ["w", "#/workflows", "Workflows"],
  ["i", "#/inbox", "Inbox"],
  ["d", "#/dead-letters", "Dead letters"],
  ["s", "#/stalled", "Stalled"],
  ["c", "#/compensations", "Compensations"],
  ["b", "#/breakers", "Breakers"],
  ["h", "#/hot-rows", "Hot rows"],
  ["t", "#/schedules", "Schedules"],
  ["r", "#/bulk", "Bulk runs"],
];
const STATUSES = {
  connecting: "Connecting",
  live: "Live",
  polling: "Polling",
  offline: "Offline",
};
// A busy server sends thousands of signals per second, and each look costs it several reads.
const LOOK_GAP_MS = 1_000;
const LOOK_SHARE = 4;

const main = document.getElementById("main");
const notice = document.getElementById("notice");
const lively = document.getElementById("live");

let shown = null; // What is on the screen: {view, params, hash, data, stop}.
let looking = false;
let wanted = false;
let timer = null;
let locked = false; // The server wants another key: asking again with this one would only look like an attack.
let nextLook = 0;

function route() {
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?", 2);
  for (const [pattern, view] of ROUTES) {
    const found = pattern.exec(path);
    if (!found) continue;
    try {
      const parts = Object.entries(found.groups ?? {}).map(([name, value]) => [name, decodeURIComponent(value)]);
      const given = new URLSearchParams(query);
      return { view, params: { ...Object.fromEntries(given), ...Object.fromEntries(parts), query: given } };
    } catch {
      return null; // An address with a broken escape, cut off while it was copied.
    }
  }
  return null;
}

function go() {
  if (location.hash === "#main") return; // The link that skips the header.
  const before = shown;
  before?.stop.abort();
  const found = route();
  shown = { ...found, hash: location.hash || "#/", data: undefined, stop: new AbortController() };
  document.title = `${found ? found.view.title(found.params) : "No such page"} · Interlock`;
  showPages();
  if (!found) {
    show(main, el("h1", { tabindex: "-1" }, "No such page"), nothing("The address is not one of this dashboard."));
    return;
  }
  // Another state or page of the same listing replaces it in place: nothing flickers and the focus stays.
  if (before === null || pathOf(before.hash) !== pathOf(shown.hash)) {
    main.replaceChildren(loading());
    main.dataset.arrived = before === null ? "" : "true";
  }
  nextLook = 0;
  look();
}

function pathOf(hash) {
  return hash.split("?")[0];
}

function showPages() {
  const path = pathOf(shown.hash);
  const links = PAGES.map(([, href, name]) => el("a", { href, "aria-current": path === href && "page" }, name));
  show(document.getElementById("pages"), links);
}

/** Refresh as soon as the rate limit allows; any number of requests become one refresh. */
function wish() {
  wanted = true;
  if (timer !== null || looking || locked || document.hidden || !shown?.view) return;
  timer = setTimeout(look, Math.max(0, nextLook - Date.now()));
}

async function look() {
  const mine = shown;
  clearTimeout(timer);
  timer = null;
  wanted = false;
  if (!mine?.view) return;
  looking = true;
  locked = false;
  const began = Date.now();
  const sent = key.get();
  try {
    await loadViewer(mine.stop.signal);
    mine.data = await mine.view.load(mine.params, mine.stop.signal);
    hearAnswer();
    if (mine !== shown) return;
    draw();
    tellTrouble(null);
  } catch (error) {
    if (mine !== shown) return;
    // A late refusal of the former key says nothing about the one that was entered meanwhile.
    locked = error.status === 401 && sent === key.get();
    // Old data is worth more than an error in its place.
    if (mine.data === undefined || error.title === undefined) show(main, problem(error, look));
    else tellTrouble(error);
  } finally {
    if (mine === shown) {
      looking = false;
      nextLook = Date.now() + Math.max(LOOK_GAP_MS, LOOK_SHARE * (Date.now() - began));
      if (wanted) wish();
    }
  }
}

function draw() {
  show(main, shown.view.draw(shown.data, shown.params, wish));
  main.dataset.ready = shown.hash;
  if (main.dataset.arrived === "true") {
    // A screen reader reads the new page's name; on the first page the browser does so.
    delete main.dataset.arrived;
    main.querySelector("h1")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function tellTrouble(error) {
  notice.hidden = error === null;
  show(notice, error && `${error.title} What is shown is from before.`);
}

function showStatus() {
  lively.className = `status ${live.status}`;
  show(lively, STATUSES[live.status]);
}

function showKey() {
  show(document.getElementById("key"), key.get() ? "API key: set" : "API key");
}

let asking = false;
let declined = false;

async function askForKey(why) {
  if (asking) return;
  asking = true;
  const done = await ask({
    title: "API key",
    text: `${why} It is kept in this tab alone and forgotten when the tab is closed. Leave it empty to forget it now.`,
    field: { label: "Key", secret: true, maxlength: 500 },
    confirm: "Use this key",
    act: (entered) => key.set(entered),
  });
  asking = false;
  declined = !done; // A reader who declined is not asked at every refresh; the button remains.
  showKey();
  if (!done) return;
  forgetMachines();
  forgetViewer();
  forgetActivity();
  locked = false;
  reconnect();
  nextLook = 0;
  wish();
}

function showTheme() {
  show(document.getElementById("theme"), `Theme: ${document.documentElement.dataset.choice}`);
}

document.getElementById("theme").onclick = () => {
  globalThis.interlockTheme.next();
  showTheme();
};
document.getElementById("key").onclick = () => askForKey("Sent to this server with every request.");
document.getElementById("skip").onclick = (event) => {
  event.preventDefault();
  main.focus();
};
document.getElementById("open").onsubmit = (event) => {
  event.preventDefault();
  const id = new FormData(event.target).get("id").trim();
  if (id) location.hash = link.page("/find", { q: id });
  event.target.reset();
};
document.getElementById("help").onclick = () => help(PAGES);
document.addEventListener("key-needed", ({ detail }) => declined || askForKey(detail.title));
document.addEventListener("visibilitychange", wish);
addEventListener("hashchange", go);
live.addEventListener("signal", wish);
live.addEventListener("look", wish);
live.addEventListener("status", showStatus);

showStatus();
showKey();
showTheme();
keepTicking();
listenForKeys(PAGES);
go();
startLive();
