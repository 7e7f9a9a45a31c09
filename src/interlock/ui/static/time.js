// Times, durations and numbers as people read them: how long ago, and when exactly.

import { el } from "./dom.js";

const UNITS = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

// How far this computer's clock is from the server's. Without it "3 s ago" would be "in 2 min" on a wrong clock.
let skewMs = 0;

/** Learn the server's time from the Date header of an answer; it has whole seconds, so less than two mean nothing. */
export function hearServerTime(header) {
  const told = Date.parse(header ?? "");
  if (Number.isNaN(told)) return;
  const skew = told - Date.now();
  skewMs = Math.abs(skew) < 2_000 ? 0 : skew;
}

export function now() {
  return Date.now() + skewMs;
}

/** `250 ms`, `4 s`, `3 min 5 s`, `2 h 10 min`, `12 d`: at most two units. */
export function duration(seconds) {
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  const index = UNITS.findIndex(([size]) => seconds >= size);
  const [size, unit] = UNITS[index];
  const whole = Math.floor(seconds / size);
  const [nextSize, nextUnit] = UNITS[index + 1] ?? [0, ""];
  const rest = nextSize && whole < 10 ? Math.floor((seconds - whole * size) / nextSize) : 0;
  return rest ? `${whole} ${unit} ${rest} ${nextUnit}` : `${whole} ${unit}`;
}

export function relative(time) {
  const seconds = (now() - time) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

/** The reader's own time zone, always in the same order and width, so that columns of it can be compared. */
export function absolute(time) {
  const date = new Date(time);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** The age and the time; the title has the exact time in UTC, as logs have it. */
export function moment(text) {
  const time = Date.parse(text ?? "");
  if (Number.isNaN(time)) return el("span", { class: "soft" }, text ? String(text) : "–");
  return el(
    "time",
    { datetime: text, title: new Date(time).toISOString() },
    el("span", { class: "relative" }, relative(time)),
    " ",
    el("span", { class: "absolute" }, absolute(time)),
  );
}

/** Seconds since a time, or null. */
export function since(text) {
  const time = Date.parse(text ?? "");
  return Number.isNaN(time) ? null : (now() - time) / 1000;
}

/** Keep "… ago" true while nothing else changes. */
export function keepTicking() {
  setInterval(() => {
    for (const node of document.querySelectorAll("time[datetime] > .relative")) {
      const text = relative(Date.parse(node.parentElement.dateTime));
      if (node.textContent !== text) node.textContent = text;
    }
  }, 1_000);
}

export function number(value, digits = 0) {
  if (typeof value !== "number") return "–";
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function several(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}
