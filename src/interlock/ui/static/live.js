// The server's event stream, and polling where it is not available.
//
// The stream is read by fetch and not by EventSource, because only fetch can send the API key in a header; a key in the
// address would end up in logs. So the few rules of the format, and of starting again, are written out here.

import { address, credentials, key, problemOf } from "./api.js";

const POLL_MS = 5_000;
const LOOK_MS = 10_000; // Time alone makes a workflow stall and a row cool down: no event reports it.
const SILENCE_MS = 60_000;
const RETRY_MS = [1_000, 2_000, 5_000, 15_000, 30_000];

/** Fires `status` (detail: "live", "polling" or "offline"), `signal` (detail: {type, data}) and `look` (look again). */
export const live = new EventTarget();
live.status = "connecting";

let lastId = "";
let again = new AbortController();
let paused = null; // What ends the pause before the next attempt, while there is one.

export function startLive() {
  follow();
  // A browser opens six connections to a server, over all its tabs: a hidden tab must not keep one.
  document.addEventListener("visibilitychange", () => document.hidden && again.abort());
  addEventListener("pagehide", () => again.abort());
  let looked = Date.now();
  setInterval(() => {
    const wait = live.status === "live" ? LOOK_MS : POLL_MS;
    if (Date.now() - looked < wait) return;
    looked = Date.now();
    live.dispatchEvent(new Event("look"));
  }, 1_000);
}

/** Connect immediately, for example with another key. */
export function reconnect() {
  again.abort();
}

/** The server has answered: where it could not be reached before, there is no reason to wait any longer. */
export function hearAnswer() {
  if (live.status === "offline") paused?.();
}

async function follow() {
  for (let failures = 0; ; failures += 1) {
    await visible();
    again = new AbortController();
    const stop = again.signal;
    let wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
    try {
      await read(stop, () => {
        failures = 0;
        become("live");
      });
    } catch (error) {
      if (!stop.aborted) become(error.status ? "polling" : "offline");
      if (error.status === 401) wait = null;
    }
    if (stop.aborted) failures = -1;
    else await pause(wait, stop);
  }
}

function visible() {
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    look();
  });
}

function become(status) {
  if (live.status === status) return;
  live.status = status;
  live.dispatchEvent(new CustomEvent("status", { detail: status }));
  live.dispatchEvent(new Event("look"));
}

/** Wait for a time, or until `paused` is called; without a time only for that: a wrong key stays wrong. */
function pause(ms, stop) {
  return new Promise((resolve) => {
    paused = () => {
      clearTimeout(timer);
      paused = null;
      resolve();
    };
    const timer = ms === null ? 0 : setTimeout(paused, ms);
    stop.addEventListener("abort", () => paused?.(), { once: true });
  });
}

async function read(stop, connected) {
  // The server first sends the events missed since then, if it still has them.
  const headers = { Accept: "text/event-stream", ...credentials() };
  if (lastId) headers["Last-Event-ID"] = lastId;
  const sent = key.get();
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const signal = AbortSignal.any([stop, silence.signal]);
    const response = await fetch(address("v1/stream"), { headers, signal, cache: "no-store", credentials: "omit" });
    if (!response.ok) throw await problemOf(response, sent);
    connected();
    const parser = new Parser(tell);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      parser.feed(value);
    }
  } finally {
    clearTimeout(timer);
  }
}

function tell({ id, type, text }) {
  if (id !== null) lastId = id;
  if (text === "") return;
  let data = null;
  try {
    data = JSON.parse(text);
  } catch {
    return; // An unknown event; the next refresh shows its effect.
  }
  live.dispatchEvent(new CustomEvent("signal", { detail: { type, data } }));
}

/** The event stream format (HTML standard, 9.2.6), fed piece by piece. */
export class Parser {
  #rest = "";
  #type = "message";
  #lines = [];
  #id = null;
  #emit;

  constructor(emit) {
    this.#emit = emit;
  }

  feed(piece) {
    const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
  }

  #line(line) {
    if (line === "") {
      // A block without data is not an event, but its id counts.
      this.#emit({ id: this.#id, type: this.#type, text: this.#lines.join("\n") });
      this.#type = "message";
      this.#lines = [];
      return;
    }
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "data") this.#lines.push(value);
    else if (field === "event") this.#type = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
  }
}
