// Drawings of time: the axis of one workflow, and values of all workflows over hours and days. Both are inline SVG.

import { el, svg } from "./dom.js";
import { absolute, duration, number } from "./time.js";

const WIDTH = 1_000;
const LABELS = 190;
const ROW = 26;
const TOP = 22;
const TICKS = 6;
const BAR_MIN = 3;
const LETTER = 6.6;

// --- The axis of one workflow ----------------------------------------------------------------------------------------

/**
 * Rows of bars and marks over one axis of time. `rows`: {label, bars: [{from, to, text, look, note}], marks: [{at, look,
 * note}]}, all times in ms. Where nothing changes for long the axis is broken, unless `linear`: a workflow that waits for
 * days still shows its seconds.
 */
export function timeAxis({ label, rows, now, linear }) {
  const times = rows.flatMap(({ bars = [], marks = [] }) => [...bars.flatMap(({ from, to }) => [from, to]), ...marks.map(({ at }) => at)]);
  const scale = scaleOf(
    [...new Set([...times, now])].sort((one, other) => one - other),
    linear,
  );
  const height = TOP + rows.length * ROW + 6;
  const shown = rows.map((row, index) => axisRow(row, TOP + index * ROW, scale));
  const at = scale.x(now);
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, class: "axis", role: "img", "aria-label": label },
    ticks(scale, height),
    scale.breaks.map(({ x, ms }) => [
      svg("path", { class: "break", d: `M${x} ${TOP - 4}V${height}` }),
      svg(
        "text",
        { x, y: height - 1, class: "tick middle" },
        svg("title", {}, `Nothing changes for ${duration(ms / 1000)}`),
        `⋯ ${duration(ms / 1000)}`,
      ),
    ]),
    shown,
    svg("path", { class: "now", d: `M${at} ${TOP - 4}V${height}` }, svg("title", {}, "now")),
  );
}

/** Times to places. A stretch without a change that is much longer than the others is cut to the length of one. */
function scaleOf(times, linear) {
  const begin = times[0];
  const stretches = times.slice(1).map((to, index) => ({ from: times[index], to, ms: to - times[index] }));
  const lengths = stretches.map(({ ms }) => ms).sort((one, other) => one - other);
  const usual = lengths[Math.floor(lengths.length / 2)] ?? 0;
  const whole = lengths.reduce((sum, each) => sum + each, 0);
  const most = linear ? Infinity : Math.max(4 * usual, whole / 40, 1);
  const kept = stretches.map((each) => ({ ...each, shown: Math.max(Math.min(each.ms, most), linear ? 0 : most / 12) }));
  const total = kept.reduce((sum, { shown }) => sum + shown, 0) || 1;
  const unit = (WIDTH - LABELS - 24) / total;
  let place = LABELS;
  for (const each of kept) {
    each.x = place;
    place += each.shown * unit;
    each.end = place;
  }
  const find = (time) => kept.find(({ to }) => time <= to) ?? kept.at(-1);
  return {
    x(time) {
      const each = find(time);
      if (!each || time <= begin) return LABELS;
      return each.x + ((each.end - each.x) * (time - each.from)) / (each.ms || 1);
    },
    time(x) {
      const each = kept.find(({ end }) => x <= end) ?? kept.at(-1);
      return each ? each.from + (each.ms * (x - each.x)) / (each.end - each.x || 1) : begin;
    },
    end: place,
    span: whole,
    breaks: kept.filter(({ ms }) => ms > most * 1.5).map(({ x, end, ms }) => ({ x: (x + end) / 2, ms })),
  };
}

function ticks(scale, height) {
  const step = (scale.end - LABELS) / (TICKS - 1);
  return Array.from({ length: TICKS }, (_, index) => {
    const x = LABELS + index * step;
    const text = clock(scale.time(x), scale.span);
    return [
      svg("path", { class: "grid", d: `M${x} ${TOP - 6}V${height}` }),
      svg("text", { x, y: 12, class: index === TICKS - 1 ? "tick end" : index ? "tick middle" : "tick" }, text),
    ];
  });
}

function clock(time, span) {
  const text = absolute(time);
  if (span > 36 * 3_600_000) return text.slice(5, 16);
  return span > 10_000 ? text.slice(11) : `${text.slice(11)}.${String(Math.round(time) % 1000).padStart(3, "0")}`;
}

function axisRow({ label, bars = [], marks = [] }, y, scale) {
  const room = Math.floor((LABELS - 12) / LETTER);
  return svg(
    "g",
    { "data-key": label },
    svg("text", { x: LABELS - 10, y: y + 17, class: "label end" }, svg("title", {}, label), cut(label, room)),
    bars.map((bar) => axisBar(bar, y, scale)),
    marks.map(({ at, look, note }) => {
      const x = scale.x(at);
      return svg("path", { class: `mark ${look}`, d: `M${x} ${y + 4}l7 9l-7 9l-7 -9z` }, svg("title", {}, note));
    }),
  );
}

function axisBar({ from, to, text, look, note }, y, scale) {
  const x = scale.x(from);
  const width = Math.max(BAR_MIN, scale.x(to) - x - 1);
  const room = Math.floor((width - 8) / LETTER);
  return svg(
    "g",
    { class: `bar ${look}` },
    svg("title", {}, note),
    svg("rect", { x, y: y + 3, width, height: ROW - 6, rx: 3 }),
    text && room >= 3 && svg("text", { x: x + 5, y: y + 17 }, cut(text, room)),
  );
}

function cut(text, room) {
  return text.length > room ? `${text.slice(0, room - 1)}…` : text;
}

// --- Values over time ------------------------------------------------------------------------------------------------

const CHART_WIDTH = 480;
const CHART_HEIGHT = 150;
const LEFT = 44;
const BOTTOM = 20;

/**
 * A chart of one or more lines over the same intervals. `lines`: {name, values, look}; null is no value. The figure says
 * in words what the lines show, so that it can be read without seeing it.
 */
export function chart({ title, lines, since, stepS, unit = "", note }) {
  const most = Math.max(...lines.flatMap(({ values }) => values.map((value) => value ?? 0)), 0);
  const top = rounded(most);
  const count = lines[0]?.values.length ?? 0;
  const x = (index) => LEFT + (index * (CHART_WIDTH - LEFT - 8)) / Math.max(1, count - 1);
  const y = (value) => CHART_HEIGHT - BOTTOM - (value * (CHART_HEIGHT - BOTTOM - 10)) / top;
  const when = (index) => since + index * stepS * 1000;
  const span = count * stepS * 1000;
  const words = lines.map((line) => spoken(line, when, unit)).join("; ");
  return el(
    "figure",
    { class: "chart", "data-key": title },
    el(
      "figcaption",
      {},
      el("strong", {}, title),
      el(
        "span",
        { class: "legend" },
        lines.map(({ name, look }) => el("span", { class: `key ${look}` }, name)),
      ),
    ),
    svg(
      "svg",
      { viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`, role: "img", "aria-label": `${title}. ${words}` },
      [0, top / 2, top].map((value) => [
        svg("path", { class: "grid", d: `M${LEFT} ${y(value)}H${CHART_WIDTH - 8}` }),
        svg("text", { x: LEFT - 6, y: y(value) + 4, class: "tick end" }, short(value, unit)),
      ]),
      [0, 0.5, 1].map((part) => {
        const index = Math.round(part * (count - 1));
        const kind = part === 1 ? "tick end" : part ? "tick middle" : "tick";
        return count > 1 && svg("text", { x: x(index), y: CHART_HEIGHT - 4, class: kind }, clock(when(index), Math.max(span, 20_000)));
      }),
      lines.map(({ values, look }) => svg("path", { class: `line ${look}`, d: way(values, x, y) })),
      lines.map(({ values, look }) =>
        lonely(values).map((index) => svg("circle", { class: `point ${look}`, cx: x(index), cy: y(values[index]), r: 2.5 })),
      ),
      columns(lines, count, x, when, unit),
    ),
    el("p", { class: "soft" }, note ?? words),
  );
}

/** Values without a neighbour, which no line shows. */
function lonely(values) {
  const known = (index) => values[index] !== null && values[index] !== undefined;
  return values.map((_, index) => index).filter((index) => known(index) && !known(index - 1) && !known(index + 1));
}

/** An invisible column for each interval, which says its values when the reader points at it. */
function columns(lines, count, x, when, unit) {
  const width = (CHART_WIDTH - LEFT) / Math.max(1, count);
  return Array.from({ length: count }, (_, index) => {
    const values = lines.map(({ name, values: all }) => `${name} ${all[index] === null ? "–" : short(all[index], unit)}`);
    return svg(
      "rect",
      { class: "column", x: x(index) - width / 2, y: 0, width, height: CHART_HEIGHT - BOTTOM },
      svg("title", {}, `${absolute(when(index))}: ${values.join(", ")}`),
    );
  });
}

function way(values, x, y) {
  let pen = "M";
  return values
    .map((value, index) => {
      if (value === null) {
        pen = "M";
        return "";
      }
      const command = `${pen}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
      return command;
    })
    .join("");
}

function spoken({ name, values }, when, unit) {
  const most = Math.max(...values.map((value) => value ?? 0), 0);
  if (most === 0) return `${name}: none`;
  const last = values.findLast((value) => value !== null);
  return `${name}: ${short(last, unit)} now, at most ${short(most, unit)} at ${absolute(when(values.indexOf(most))).slice(0, 16)}`;
}

function short(value, unit) {
  if (unit === "s") return duration(value);
  if (value >= 10_000) return `${number(value / 1000, value < 100_000 ? 1 : 0)}k`;
  return number(value, value !== 0 && value < 10 && !Number.isInteger(value) ? 1 : 0);
}

function rounded(value) {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * size).find((each) => each >= value);
}

/** The time in which a value was above zero around its peak: [from, to] in ms, or null. */
export function stretch(values, since, stepS) {
  const most = Math.max(...values.map((value) => value ?? 0), 0);
  if (most === 0) return null;
  let from = values.indexOf(most);
  let to = from;
  while (from > 0 && values[from - 1]) from -= 1;
  while (to < values.length - 1 && values[to + 1]) to += 1;
  return [since + from * stepS * 1000, since + (to + 1) * stepS * 1000];
}
