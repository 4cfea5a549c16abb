// Small charts of a time: what was, in what order, and where nothing is known. Drawn in SVG, told in words, too.

import { clock, day, el, svg } from "./dom.js";

const WIDTH = 1000;
const TICKS = 4;
const DAY_MS = 86400000;

/** A scale from moments (milliseconds) to places. */
const across = (begin, end) => (at) => (WIDTH * (at - begin)) / (end - begin);

/** Times below a chart, a few that are easy to read. */
export function timeAxis(begin, end) {
  const written = end - begin > 1.5 * DAY_MS ? (at) => day(at).slice(5) : (at) => clock(at).slice(0, 5);
  const places = Array.from({ length: TICKS + 1 }, (_, n) => begin + ((end - begin) * n) / TICKS);
  return el("div.time-axis", { "aria-hidden": "true" }, places.map((at) => el("span", {}, written(at))));
}

const drawing = (height, name, ...parts) =>
  svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": name, class: "chart" }, parts);

/** Shares of states in every bin, the worst at the bottom; empty where nothing is known. `bins` have at, ms and states. */
export function stateBand(bins, begin, end, name) {
  const height = 100;
  const x = across(begin, end);
  const parts = bins.flatMap(({ at, ms, states }) => {
    const whole = Object.values(states).reduce((sum, one) => sum + one, 0) || 1;
    let bottom = height;
    return ["bad", "degraded", "unknown", "off", "good"].filter((state) => states[state]).map((state) => {
      const tall = (height * states[state]) / whole;
      bottom -= tall;
      return svg("rect", { class: state, x: x(at), y: bottom, width: Math.max(1, x(at + ms) - x(at)), height: tall });
    });
  });
  return el("div.band", {}, drawing(height, name, parts));
}

/** A line through the middles of bins that follow each other, with an area from least to most if there is one. */
export function curve(points, begin, end, { low, high, unit, name }) {
  const height = 100;
  const x = across(begin, end);
  const y = (value) => height - (height * (Math.min(high, Math.max(low, value)) - low)) / (high - low);
  const known = points.filter((one) => one.value !== null);
  const pieces = [];
  for (const one of known) {
    const last = pieces.at(-1)?.at(-1);
    if (last && one.at - (last.at + last.ms) < one.ms / 2) pieces.at(-1).push(one);
    else pieces.push([one]);
  }
  const middle = (one) => x(one.at + one.ms / 2).toFixed(1);
  const line = (piece) => piece.length > 1
    ? svg("path", { class: "line", d: `M${piece.map((one) => `${middle(one)} ${y(one.value).toFixed(1)}`).join("L")}` })
    : svg("path", { class: "line", d: `M${x(piece[0].at).toFixed(1)} ${y(piece[0].value).toFixed(1)}h${Math.max(2, x(piece[0].at + piece[0].ms) - x(piece[0].at)).toFixed(1)}` });
  const area = (piece) => piece[0].least !== undefined && piece.length > 1 && svg("path", { class: "area",
    d: `M${piece.map((one) => `${middle(one)} ${y(one.most).toFixed(1)}`).join("L")}L${piece.toReversed().map((one) => `${middle(one)} ${y(one.least).toFixed(1)}`).join("L")}z` });
  return el("div.curve", {},
    el("div.scale", { "aria-hidden": "true" }, el("span", {}, `${high}`), el("span", {}, `${low}${unit ? ` ${unit}` : ""}`)),
    drawing(height, name, pieces.map(area), pieces.map(line)));
}
