// Passages by day and hour: one row for each day, one cell for each hour; a click filters by it.

import { colorOf } from "./class-colors.js";
import { counted, day as dayText, el } from "./dom.js";

const LEVELS = [1, 2, 4, 8];
const FEWEST_DAYS = 7;
const SHORT = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });
const LONG = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);

/** Midnight at the beginning of a local day; an hour of it if given. */
const at = (day, hour = 0) => {
  const [year, month, date] = day.split("-").map(Number);
  return new Date(year, month - 1, date, hour);
};

/** From when to when a day or an hour of it lasts; on the day on which clocks change, hours are longer or missing. */
export const span = (day, hour = null) =>
  (hour === null ? [at(day), at(day, 24)] : [at(day, hour), at(day, hour + 1)]).map((one) => one.toISOString());

const hours = (hour) => `${String(hour).padStart(2, "0")}:00–${String(hour + 1).padStart(2, "0")}:00`;

/** A day, or an hour of it, in words. */
export const named = (day, hour = null) => `${LONG.format(at(day))}${hour === null ? "" : `, ${hours(hour)}`}`;

const total = (labels) => Object.values(labels).reduce((sum, n) => sum + n, 0);

export const byClass = (labels, names) =>
  Object.entries(labels).map(([label, n]) => `${n} ${names[label] ?? "without a class"}`).join(", ");

const inWords = (labels, names) => {
  const n = total(labels);
  return n ? `${counted(n, "passage")}: ${byClass(labels, names)}` : "no passages";
};

const level = (n) => LEVELS.filter((least) => n >= least).length;

/** The table; `chosen` is { day, hour }, `pick(day, hour)` is called with what is clicked; hour is null for a day. */
export function calendar(found, { classes, chosen, pick }) {
  const known = found.known_since === null ? null : dayText(found.known_since).slice(0, 10);
  const now = new Date(found.now);
  // An array that is new has no month to show.
  const rows = [...found.days].reverse().filter((one, n) => n < FEWEST_DAYS || (known !== null && one.day >= known)).map((one) => row(one));
  const grid = el("table.calendar", { onkeydown: move },
    el("caption", {}, "Passages by day and hour, local time. Click a day or an hour to filter the list."),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Day"),
      HOURS.map((hour) => el("th", { scope: "col", "aria-label": hours(hour) }, hour % 6 ? "" : hour)), el("th", { scope: "col" }, "All"))),
    el("tbody", {}, rows));
  // One stop of the Tab key; arrows move inside.
  (grid.querySelector("button[aria-pressed=true]") ?? grid.querySelector("button"))?.setAttribute("tabindex", "0");
  return grid;

  function row(one) {
    const before = known === null || one.day < known;
    const text = `${named(one.day)}: ${before ? "the array did not exist" : inWords(one.labels, found.names)}`;
    return el("tr", { class: before ? "before" : null },
      el("th", { scope: "row" }, cell(one.day, null, text, SHORT.format(at(one.day)), before)),
      HOURS.map((hour) => hourCell(one, hour, before)),
      el("td.total", {}, before ? "" : [el("span.number", {}, one.passages || ""), shares(one.labels)]));
  }

  function hourCell(one, hour, before) {
    if (before || at(one.day, hour) > now) return el("td");
    const labels = one.hours[hour];
    const text = `${named(one.day, hour)}: ${inWords(labels, found.names)}`;
    return el("td", {}, cell(one.day, hour, text, "", false, level(total(labels))));
  }

  function cell(day, hour, text, written, disabled, heat = null) {
    const pressed = chosen.day === day && chosen.hour === hour;
    return el("button", {
      type: "button", title: text, "aria-label": text, disabled, tabindex: "-1", "aria-pressed": String(pressed),
      data: heat === null ? { day } : { day, hour: String(hour), heat: String(heat) },
      onclick: () => (pressed ? pick(null, null) : pick(day, hour)),
    }, written);
  }

  function shares(labels) {
    const n = total(labels);
    return el("span.class-bar", { "aria-hidden": "true" }, Object.entries(labels).map(([label, count]) => {
      const part = el("span");
      part.style.width = `${(100 * count) / n}%`;
      part.style.background = `var(${colorOf(label, classes)})`;
      return part;
    }));
  }

  function move(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const from = event.target.closest("td, th");
    if (!step || !from) return;
    event.preventDefault();
    const line = from.parentElement.parentElement.rows[from.parentElement.sectionRowIndex + step[0]];
    const next = line?.cells[from.cellIndex + step[1]]?.querySelector("button:not(:disabled)");
    if (!next) return;
    event.target.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }
}
