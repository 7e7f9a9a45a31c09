// Calls to the HTTP interface. The server's problem documents (RFC 9457) become `Problem`, with what, why and how to fix.

import { hearServerTime } from "./time.js";

// Relative to this file, so that the page also works where the server is mounted below a path of another program.
const ROOT = new URL("../", import.meta.url);
const TIMEOUT_MS = 15_000;
const PAGES_MAX = 10;
const KEY = "interlock-key";

export class Problem extends Error {
  constructor({ status = 0, title, detail = "", fix = "", code = "", decided = null }) {
    super(title);
    Object.assign(this, { status, title, detail, fix, code, decided });
  }
}

/** The API key lives in this tab alone: sessionStorage goes with it, and no other tab or visit can read it. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set(value) {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  },
};

/** A path with its values escaped: at`v1/workflows/${id}/history`. An id may hold anything but a slash. */
export function at(parts, ...values) {
  return parts.reduce((path, part, index) => path + encodeURIComponent(String(values[index - 1])) + part);
}

export function address(path, query = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) {
    for (const each of [value].flat()) {
      if (each !== null && each !== undefined && each !== "") url.searchParams.append(name, each);
    }
  }
  return url;
}

let viewer = null;

/** The client as the server knows it, with its scopes; asked once for each key. */
export async function loadViewer(signal) {
  viewer ??= { ...(await call("v1/whoami", { signal })), key: key.get() };
  return viewer;
}

/** Another key is another client. */
export function forgetViewer() {
  viewer = null;
}

/** Why the key may not do what needs this scope, or null when it may. */
export function lacks(scope) {
  if (viewer === null || viewer.scopes.includes(scope)) return null;
  return `This needs a key of scope ${scope}; ${viewer.actor} has ${viewer.scopes.join(", ")}.`;
}

export function credentials() {
  return key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
}

export async function call(path, { method = "GET", query, body, signal, headers: extra = {} } = {}) {
  const sent = key.get();
  const headers = { Accept: "application/json", ...extra, ...credentials() };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let response;
  try {
    response = await fetch(address(path, query), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable(error);
  }
  hearServerTime(response.headers.get("Date"));
  if (!response.ok) throw await problemOf(response, sent);
  return response.status === 204 ? null : JSON.parse(await response.text(), exact);
}

/** A whole number beyond 2^53 is shown as it is stored; as a number of JavaScript it would be another one. */
function exact(_, value, { source } = {}) {
  const lost = Number.isInteger(value) && !Number.isSafeInteger(value) && source !== undefined;
  return lost && JSON.rawJSON ? JSON.rawJSON(source) : value;
}

function unreachable(error) {
  const late = error.name === "TimeoutError";
  return new Problem({
    title: late ? `The server has not answered for ${TIMEOUT_MS / 1000} s.` : "The server cannot be reached.",
    detail: late
      ? "It is overloaded, or something between here and there holds the answer back."
      : "It has stopped, or the network is down.",
    fix: "This page tries again by itself.",
  });
}

/** The problem an answer tells. `sent` is the key that was sent: when another one was entered meanwhile, none is asked for. */
export async function problemOf(response, sent) {
  let told = {};
  try {
    told = await response.json();
  } catch {
    // Something between here and the server has answered for it.
  }
  const text = (value) => (typeof value === "string" ? value : "");
  // `title` names the type of the problem; `what` is what happened, and `detail` begins with it.
  const what = text(told.what);
  const title = what || text(told.title) || `The server answered ${response.status} ${response.statusText}`.trim() + ".";
  const detail = text(told.detail).startsWith(what) ? text(told.detail).slice(what.length).trim() : text(told.detail);
  const problem = { status: response.status, title, detail, fix: text(told.fix), code: text(told.code), decided: told.decided };
  if (response.status === 401 && sent === key.get()) document.dispatchEvent(new CustomEvent("key-needed", { detail: problem }));
  return new Problem(problem);
}

/** All items of a listing, page after page, up to a bound; `more` says that the bound was reached. */
export async function all(path, { query = {}, signal } = {}) {
  const items = [];
  let cursor = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const answer = await call(path, { query: { ...query, cursor }, signal });
    items.push(...answer.items);
    cursor = answer.cursor ?? null;
    if (cursor === null) break;
  }
  return { items, more: cursor !== null };
}
