// Explanation of a decision: part of each sensor, values that support a class, rhythm, nearest training segments.

import { get } from "./api.js";
import { headline, turned } from "./decision.js";
import { el, percent, words } from "./dom.js";
import { figure, soundFigure } from "./sounds.js";
import { shape } from "./states.js";

const number = (value, digits = 3) => (value === null ? "–" : value.toFixed(digits).replace("-", "−"));
const without = (one) => (one.reason === "nobody" ? "nobody" : one.label === null ? `undecided${one.reason ? ` (${one.reason})` : ""}` : `${words(one.label)} ${percent(one.probability)}`);

/** The explanation of a decision for one sensor of the array. */
export function explained(found, sensor) {
  const own = found.sensors[sensor - 1];
  return el("div.stack", {},
    headline(found.event),
    el("p.note", {}, el("strong", {}, `Sensor ${sensor}: `), reasons(own, found.alpha)),
    found.rhythm && el("p.rhythm", {}, el("strong", {}, "Rhythm of the array: "), `${found.rhythm.words}. `, el("strong", {}, "Sound: "), `${found.sound}.`),
    table(found, sensor),
    el("p", {}, turned(found.event)),
    found.same === false && el("p.note.degraded", {}, "The p-values, recomputed from the sound, differ from those of the event: the program or the sound has changed since."),
    found.trained_on && el("p.note", {}, "This segment is a training segment of the model: its nearest training segment is itself."),
    values(found, own),
    neighbors(found, own));
}

/** Role and weight of a sensor, with the p-value behind them. */
function reasons(own, alpha) {
  const known = own.known ? ` Sound: ${own.known}.` : "";
  if (own.role !== "used") return `${own.why}.${own.fault ? ` Timing: ${own.fault}.` : ""}${known}`;
  const cause = own.causes.length ? ` Its state is degraded (${own.causes.map(words).join(", ")}), which halves its weight.` : "";
  if (own.weight >= 0.999) return `used with full weight. Timing: ${own.fault ?? "no p-value"}.${known}${cause}`;
  return `used with weight ${number(own.weight, 2)}. Timing: ${own.fault ?? "no p-value"}; at ${alpha} or less the sensor is excluded.${known}${cause}`;
}

function table(found, sensor) {
  const largest = Math.max(1, ...found.sensors.map((one) => Math.abs(one.contribution ?? 0)));
  const heading = found.contributions_are ? words(found.contributions_are) : "contribution";
  const columns = ["Sensor", "Role", "Weight", "p own", "p others", "p known", heading, "Without it"];
  return el("table.says.stacked", {},
    el("caption", {}, found.classes ? `The ${heading} is in log-odds: to the left for ${words(found.classes[0])}, to the right for ${words(found.classes[1])}. Small p own or p others: sensor fault. Small p known: unlike every class.` : "Part of each sensor in the decision."),
    el("thead", {}, el("tr", {}, columns.map((one) => el("th", { scope: "col" }, one)))),
    el("tbody", {}, found.sensors.map((one) => el("tr", { "aria-current": one.sensor === sensor && "true" },
      el("th", { scope: "row" }, el("a", { href: `/sensors/${one.sensor}?event=${found.event.id}` }, `Sensor ${one.sensor}`)),
      el("td", {}, one.why),
      el("td.number", { data: { name: "weight" } }, number(one.weight, 2)),
      el("td.number", { data: { name: "p own" } }, number(one.p_own)),
      el("td.number", { data: { name: "p others" } }, number(one.p_others)),
      el("td.number", { title: one.known, data: { name: "p known" } }, number(one.p_known)),
      el("td", { data: { name: heading } }, balance(one.contribution, largest)),
      el("td", { class: one.without.label === found.event.label ? "quiet" : "other", data: { name: "without it" } }, without(one.without))))));
}

/** A bar to either side of zero. */
function balance(value, largest) {
  const bar = el("span", { class: value < 0 ? "first" : "second" });
  const share = 50 * Math.min(1, Math.abs(value ?? 0) / largest);
  bar.style.width = `${share}%`;
  bar.style.left = `${value < 0 ? 50 - share : 50}%`;
  return el("span.balance", {}, el("span.track", { "aria-hidden": "true" }, bar), el("span.number", {}, number(value, 2)));
}

/** Values of the sensor's summary with the largest effect on its log-odds, and the effects of groups of values. */
function values(found, own) {
  if (found.same === null) return null;
  const box = (...children) => el("section.values", { "aria-label": "Values with the largest effect" }, el("h3", {}, "Values with the largest effect"), ...children);
  if (found.why_no_values) return box(el("p.note", {}, found.why_no_values));
  if (!own.values.length) return box(el("p.note", {}, own.role === "absent" ? "Part of the segment is missing: there are no values." : own.median_log_odds === null ? "The sensor has no classifier." : "No single value changes the log-odds by 0.01 or more."));
  const [first, second] = found.classes.map(words);
  const largest = Math.max(0.5, ...own.values.map((one) => Math.abs(one.log_odds)), ...own.groups.map((one) => Math.abs(one.log_odds)));
  const head = (...names) => el("thead", {}, el("tr", {}, names.map((one) => el("th", { scope: "col" }, one))));
  const written = (value, unit) => (value === null ? "–" : `${number(value, 1)} ${unit}`);
  const effect = (one) => el("td", { data: { name: "effect" } }, balance(one.log_odds, largest));
  return box(
    el("p", {}, `Sensor ${own.sensor} alone has log-odds of ${number(own.log_odds, 2)}; a segment with all values at the sensor's training median has ${number(own.median_log_odds, 2)}. The effect is the difference to the same segment with this value at the median: to the left for ${first}, to the right for ${second}. Effects do not add up, because values act together.`),
    el("table.stacked", {},
      head("Value", "Here", `Typical ${first}`, `Typical ${second}`, "Effect (log-odds)", "Supports"),
      el("tbody", {}, own.values.map((one) => el("tr", {},
        el("th", { scope: "row" }, one.name),
        el("td.number", { data: { name: "here" } }, written(one.value, one.unit)),
        el("td.number", { data: { name: `typical ${first}` } }, written(one.typical[0], one.unit)),
        el("td.number", { data: { name: `typical ${second}` } }, written(one.typical[1], one.unit)),
        effect(one),
        el("td", { data: { name: "supports" } }, words(one.supports)))))),
    el("details", {}, el("summary", {}, "Effects of groups of values"),
      el("table.stacked", {}, head("Group", "Effect (log-odds)"),
        el("tbody", {}, own.groups.map((one) => el("tr", {}, el("th", { scope: "row" }, one.name), effect(one)))))));
}

/** The segment beside its nearest training segments. */
function neighbors(found, own) {
  const { event } = found;
  // Without the sound there is neither a spectrogram nor anything to compare.
  if (found.same === null) return el("p.note.degraded", {}, found.why_not);
  const here = soundFigure({ recording: event.recording, start: event.start_sample, stop: event.stop_sample, sensor: own.sensor },
    `the segment of event ${event.id}, sensor ${own.sensor}`, { caption: el("strong", {}, "This segment") });
  const near = own.nearest.map((one, n) => reference(own, one, `${n + 1}. nearest`));
  const refused = own.nearest_refused && reference(own, own.nearest_refused, "nearer, but excluded");
  return el("section", { "aria-label": "Nearest training segments" },
    el("h3", {}, "Nearest training segments"),
    !near.length && el("p.note", {}, own.role === "absent" ? "Part of the segment is missing: there is nothing to compare." : "The model has no training segment of this sensor."),
    el("div.neighbours", {}, here, refused, near));
}

function reference(own, one, title) {
  const name = `${one.recording} at ${one.seconds} s, sensor ${own.sensor}`;
  const about = [el("strong", {}, title), el("span", {}, one.label === null ? "no label" : words(one.label)),
    el("small", {}, `distance ${number(one.distance, 2)} · ${one.recording}, ${one.seconds.toFixed(1)} s`),
    one.refused && el("span.refused.degraded", {}, shape("degraded"), `excluded from training: ${one.refused}`)];
  if (!one.sound) return el("figure.sound", {}, el("figcaption", {}, about), el("div.picture", {}, el("p.missing", {}, one.why_silent)));
  const place = one.sound.replace("/api/v1", "").replace(/sound$/, "spectrogram");
  return figure(`${one.sound}?sensor=${own.sensor}`, () => get(place, { sensor: own.sensor }), own.sensor, name, about);
}
