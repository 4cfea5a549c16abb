// The rows of a timeline as a drawing. Whatever is drawn can be pointed at, and says what it is.

import { mark, marks } from "./axis.js";
import { colorOf } from "./class-colors.js";
import { counted, svg, words } from "./dom.js";

const AXIS = 22;
const GUTTER = 96;
const NARROW = 640;
const STATE_HEIGHTS = { good: 0.3, degraded: 0.6, bad: 1, off: 0.3, unknown: 0.12 };
export const ABSENT = { gap: "sound missing", waiting: "no sound came", not_listening: "not listening" };
export const SOUND = { kept: "sound kept", partly: "sound partly kept", removed: "sound removed", never_kept: "sound never kept" };
const GLYPHS = {
  event_noticed: "M0 -7L7 0L0 7L-7 0Z",
  fault_suspected: "M0 -7L7 6H-7Z",
  common_fault: "M-6 -6H6V6H-6Z",
  label_doubted: "M0 -7A7 7 0 1 1 -0.1 -7ZM-2 -2A2 2 0 1 1 0 1V2.500M0 4V5",
};

/** Rows from top to bottom: key, title and height. Segments are shown if `zoomed`, or if there is nothing but segments. */
export function rowsOf(data, zoomed) {
  const segments = zoomed || (!data.passages.length && data.tally.bins.some((bin) => Object.keys(bin.labels).length));
  return [
    { key: "listening", title: "Listening", height: 14 },
    { key: "passages", title: "Passages", height: 26 },
    ...(segments ? [{ key: "decisions", title: "Decisions", height: 60 }, { key: "undecided", title: "Undecided", height: 18 }] : []),
    { key: "anomalies", title: "Anomalies", height: 20 },
    { key: "labels", title: "Labels", height: 16 },
    { key: "models", title: "Model", height: 18 },
    ...data.sensors.map((one) => ({ key: `sensor-${one.sensor}`, title: `Sensor ${one.sensor}`, height: 34, sensor: one })),
    { key: "sound", title: "Sound", height: 14 },
  ];
}

/** Which colour a label has: the classes of the model first, in their order. */
function sideOf(data, label) {
  const known = data.classes.length ? data.classes : [...new Set(data.tally.bins.flatMap((bin) => Object.keys(bin.labels)))].sort();
  return known.indexOf(label) === 0 ? 0 : 1;
}

/** Everything of a row that can be pointed at, in the order of time: row, kind, begin, end and what it is about. */
export function itemsOf(data, row, until) {
  const ended = (bands) => bands.map((band) => ({ ...band, end: Math.min(band.end, until) })).filter((band) => band.end > band.begin);
  const item = (kind) => (one) => ({ row, kind, begin: one.begin ?? one.time, end: one.end ?? one.time, about: one });
  if (row.key === "listening") return ended(data.listening).map(item("listening"));
  if (row.key === "sound") return ended(data.sound).filter((band) => band.kind !== "none").map(item("sound"));
  if (row.key === "models") return ended(data.models).filter((band) => band.kind !== "none").map(item("model"));
  if (row.key === "anomalies") return data.anomalies.map(item("anomaly"));
  if (row.key === "passages") return data.passages.map(item("passage"));
  if (row.key === "labels") return data.labels.map(item("label"));
  if (row.key === "decisions" || row.key === "undecided") return decided(data, row);
  const number = row.sensor.sensor;
  return [
    ...ended(row.sensor.states).map((band) => ({ ...item("state")(band), sensor: number })),
    ...ended(row.sensor.trust).filter((band) => band.kind !== "trusted").map((band) => ({ ...item("mask")(band), sensor: number })),
    ...data.tally.bins.filter((bin) => bin.refused[number - 1]).map((bin) => ({
      ...item("refusal")(bin), end: bin.begin + data.tally.bin_seconds, sensor: number,
    })),
  ].sort((one, other) => one.begin - other.begin);
}

function decided(data, row) {
  const own = (label) => (row.key === "undecided") === (label === null);
  if (data.decisions) {
    // Where nobody is there, there is nothing to decide.
    return data.decisions.filter((one) => own(one.label) && one.reason !== "nobody").map((one) => ({ row, kind: "decision", begin: one.time, end: one.time, about: one }));
  }
  const count = (bin) => (row.key === "undecided" ? bin.undecided : Object.values(bin.labels).reduce((sum, n) => sum + n, 0));
  return data.tally.bins.filter(count).map((bin) => ({ row, kind: "bin", begin: bin.begin, end: bin.begin + data.tally.bin_seconds, about: bin }));
}

const patterns = () =>
  svg("defs", {},
    svg("pattern", { id: "hatch", width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { class: "paper", width: 8, height: 8 }), svg("rect", { class: "ink", width: 2.5, height: 8 })),
    svg("pattern", { id: "dots", width: 7, height: 7, patternUnits: "userSpaceOnUse" }, svg("rect", { class: "paper", width: 7, height: 7 }), svg("circle", { class: "ink", cx: 3.5, cy: 3.5, r: 1.6 })),
    svg("pattern", { id: "bars", width: 6, height: 6, patternUnits: "userSpaceOnUse" }, svg("rect", { class: "paper", width: 6, height: 6 }), svg("rect", { class: "ink", width: 2, height: 6 })),
    svg("pattern", { id: "mask", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(-45)" }, svg("rect", { class: "cut", width: 2.5, height: 6 })));

/** Draw a view of the data: begin and end in seconds, width in pixels; `until` is how far anything is known. */
export function draw(data, { begin, end, width, until, chosen, zoomed }) {
  const narrow = width < NARROW;
  const left = narrow ? 0 : GUTTER;
  const inner = Math.max(10, width - left - 1);
  const x = (at) => left + ((Math.min(Math.max(at, begin), end) - begin) / (end - begin)) * inner;
  const visible = (item) => item.end >= begin && item.begin <= end;
  const items = new Map();
  const parts = [];
  let y = AXIS;
  const rows = rowsOf(data, zoomed).map((row) => {
    const top = y + (narrow ? 15 : 3);
    y = top + row.height + 5;
    return { ...row, top };
  });
  const height = y + 4;
  const frame = { x, begin, end, left, inner, data, until };
  for (const row of rows) {
    const group = svg("g", { class: `lane ${row.key}`, "data-row": row.key });
    group.append(
      svg("line", { class: "rule", x1: left, x2: left + inner, y1: row.top + row.height + 2.5, y2: row.top + row.height + 2.5 }),
      svg("text", { class: "row-title", x: narrow ? 2 : left - 8, y: narrow ? row.top - 3 : row.top + row.height / 2 + 4, "text-anchor": narrow ? "start" : "end" }, row.title));
    for (const item of itemsOf(data, row, until).filter(visible)) {
      const made = shape(item, row, frame);
      if (!made) continue;
      made.classList.add("item");
      if (chosen && same(item, chosen)) made.classList.add("chosen");
      items.set(made, item);
      group.append(made);
    }
    parts.push(group);
  }
  const { step, moments } = marks(begin, end, inner, narrow ? 70 : 90);
  const axis = svg("g", { class: "axis" }, moments.map((at) => [
    svg("line", { x1: x(at), x2: x(at), y1: AXIS - 5, y2: height }),
    svg("text", { x: x(at), y: 13, "text-anchor": x(at) - left < 20 ? "start" : x(at) > left + inner - 20 ? "end" : "middle" }, mark(at, step)),
  ]));
  const drawing = svg("svg", { class: "timeline-chart", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    patterns(), axis, absences(frame, height, rows[1]), parts, changes(frame, height), present(frame, height));
  return { drawing, items, rows, left, inner, height };
}

export const same = (one, other) => one.row.key === other.row.key && one.kind === other.kind && one.begin === other.begin;

/** Where nobody heard anything, nothing of any row means anything: the hatching goes through all of them. */
function absences({ x, begin, end, data, until }, height, row) {
  return svg("g", { class: "absences", "pointer-events": "none" }, data.listening
    .filter((band) => band.kind in ABSENT && band.end > begin && band.begin < end)
    .map((band) => {
      const [left, right] = [x(band.begin), x(Math.min(band.end, until))];
      const said = ABSENT[band.kind];
      return [
        svg("rect", { class: `absence ${band.kind}`, x: left, y: AXIS, width: Math.max(1, right - left), height: height - AXIS }),
        right - left > 8 * said.length && svg("text", { class: "said", x: (left + right) / 2, y: row.top + row.height / 2 + 4, "text-anchor": "middle" }, said),
      ];
    }));
}

/** From here on another model decides. */
function changes({ x, begin, end, data }, height) {
  const shown = data.models.filter((band, place) => place && band.begin > begin && band.begin < end && band.kind !== "none"
    && data.models.slice(0, place).findLast((one) => one.kind !== "none")?.kind !== band.kind);
  return svg("g", { class: "changes", "pointer-events": "none" }, shown.map((band) => svg("line", { x1: x(band.begin), x2: x(band.begin), y1: AXIS, y2: height })));
}

function present({ x, begin, end, until }, height) {
  if (until < begin || until > end) return null;
  return svg("line", { class: "present", x1: x(until), x2: x(until), y1: AXIS - 4, y2: height, "pointer-events": "none" });
}

const stretch = ({ x }, item, least = 1.5) => ({ x: x(item.begin), width: Math.max(least, x(item.end) - x(item.begin)) });

function shape(item, row, frame) {
  const { about } = item;
  if (item.kind === "listening") return svg("rect", { class: `band ${about.kind}`, ...stretch(frame, item), y: row.top, height: row.height });
  if (item.kind === "sound") return svg("rect", { class: `band sound-${about.kind}`, ...stretch(frame, item), y: row.top, height: row.height });
  if (item.kind === "model") return titled(`band model`, item, row, frame, about.kind);
  if (item.kind === "passage") return colored("band passage", item, row, frame, nameOf(frame.data, about), about.labeled ?? about.label);
  if (item.kind === "label") return colored("band label", item, row, frame, frame.data.names[about.label] ?? words(about.label), about.label);
  if (item.kind === "anomaly") return glyph(item, row, frame);
  if (item.kind === "decision") return single(item, row, frame);
  if (item.kind === "bin") return bars(item, row, frame);
  return ofSensor(item, row, frame);
}

/** What a passage is called: by a person, else by the model. */
export const nameOf = (data, { label, labeled, n }) =>
  (n > 1 ? counted(n, "passage") : data.names[labeled ?? label] ?? (label ? words(label) : "Somebody, no class"));

function colored(kind, item, row, frame, title, label) {
  const made = titled(kind, item, row, frame, title);
  made.firstChild.style.fill = `var(${colorOf(label, frame.data.classes)})`;
  return made;
}

/** A band with words in it where there is room for them. */
function titled(kind, item, row, frame, title) {
  const place = stretch(frame, item, 3);
  const room = place.width > 7.5 * title.length + 8;
  return svg("g", { class: kind },
    svg("rect", { ...place, y: row.top, height: row.height }),
    room && svg("text", { class: "inside", x: place.x + 4, y: row.top + row.height / 2 + 4 }, title));
}

function glyph(item, row, frame) {
  const { about } = item;
  const at = [frame.x(item.begin), row.top + row.height / 2];
  return svg("g", { class: `mark ${about.kind}`, transform: `translate(${at})` },
    svg("rect", { class: "reach", x: -9, y: -10, width: 18, height: 20 }),
    svg("path", { d: GLYPHS[about.kind] }),
    about.n > 1 && svg("text", { x: 9, y: 4 }, String(about.n)));
}

/** The first class above the middle, the others below, each as high as it is probable. */
function single(item, row, frame) {
  const { about } = item;
  const width = Math.max(2, Math.min(10, 0.45 * (frame.x(item.begin) - frame.x(item.begin - 1)) || 2));
  const x = frame.x(item.begin) - width;
  if (about.label === null) return svg("rect", { class: "band undecided", x, width, y: row.top, height: row.height });
  const half = row.height / 2;
  const side = sideOf(frame.data, about.label);
  const high = half * (0.2 + 0.8 * (about.probability ?? 0.5));
  const made = svg("rect", { class: "band", x, width, y: side ? row.top + half : row.top + half - high, height: high });
  made.style.fill = `var(${colorOf(about.label, frame.data.classes)})`;
  return made;
}

function bars(item, row, frame) {
  const { about: bin } = item;
  const place = stretch(frame, item);
  place.width = Math.max(1, place.width - (place.width > 4 ? 1 : 0));
  const { most, mostUndecided } = largest(frame);
  if (row.key === "undecided") {
    const high = (row.height * bin.undecided) / mostUndecided;
    return svg("rect", { class: "band undecided", ...place, y: row.top + row.height - high, height: high });
  }
  const half = row.height / 2;
  const sums = [0, 0];
  for (const [label, n] of Object.entries(bin.labels)) sums[sideOf(frame.data, label)] += n;
  const high = sums.map((n) => (half * n) / most);
  return svg("g", {},
    svg("rect", { class: "reach", ...place, y: row.top, height: row.height }),
    svg("rect", { class: "band side-0", ...place, y: row.top + half - high[0], height: high[0] }),
    svg("rect", { class: "band side-1", ...place, y: row.top + half, height: high[1] }));
}

/** The highest bars that are visible have the height of their row. */
function largest(frame) {
  if (frame.largest) return frame.largest;
  const seconds = frame.data.tally.bin_seconds;
  const visible = frame.data.tally.bins.filter((bin) => bin.begin + seconds > frame.begin && bin.begin < frame.end);
  const most = Math.max(1, ...visible.flatMap((bin) => Object.values(bin.labels)));
  frame.largest = { most, mostUndecided: Math.max(1, ...visible.map((bin) => bin.undecided)) };
  return frame.largest;
}

/** Refusals hang from the top, the state stands at the bottom, as high as it is bad; masks cut off its top. */
function ofSensor(item, row, frame) {
  const { about } = item;
  const place = stretch(frame, item);
  const bottom = row.top + row.height;
  if (item.kind === "refusal") {
    const total = about.undecided + Object.values(about.labels).reduce((sum, n) => sum + n, 0);
    return svg("rect", { class: "band refusal", ...place, y: row.top, height: 2 + 8 * Math.min(1, about.refused[item.sensor - 1] / Math.max(1, total)) });
  }
  const room = row.height - 12;
  if (item.kind === "mask") return svg("rect", { class: `band ${about.kind === "off" ? "switched-off" : "masked"}`, ...place, y: bottom - room, height: 9 });
  const high = room * (STATE_HEIGHTS[about.kind] ?? 0.12);
  const title = about.why && about.kind !== "unknown" ? words(about.why) : about.kind;
  const written = high >= 12 && place.width > 6.6 * title.length + 8;
  return svg("g", { class: `band state ${about.kind}` },
    svg("rect", { class: "reach", ...place, y: bottom - room, height: room }),
    svg("rect", { ...place, y: bottom - high, height: high }),
    written && svg("text", { class: "inside", x: place.x + 4, y: bottom - 3 }, title));
}
