// Why a decision is what it is, for people: who was believed, and what each sensor's sound is most like.

import { get } from "./api.js";
import { headline, turned } from "./decision.js";
import { el, percent, words } from "./dom.js";
import { figure, soundFigure } from "./sounds.js";
import { shape } from "./states.js";

const number = (value, digits = 3) => (value === null ? "–" : value.toFixed(digits).replace("-", "−"));
const without = (one) => (one.label === null ? `undecided${one.reason ? ` (${one.reason})` : ""}` : `${words(one.label)} ${percent(one.probability)}`);

/** The whole of it, for one sensor of the array. */
export function explained(found, sensor) {
  const say = found.sensors[sensor - 1];
  return el("div.stack", {},
    headline(found.event),
    el("p.note", {}, el("strong", {}, `Sensor ${sensor}: `), reasons(say, found.alpha)),
    table(found, sensor),
    el("p", {}, turned(found.event)),
    found.same === false && el("p.note.degraded", {}, "Made again from the sound, the p-values differ from those of the event: the program or the sound has changed since."),
    found.trained_on && el("p.note", {}, "The model was learned from this very sound: it is most like itself."),
    neighbours(found, say));
}

/** In a sentence, why a sensor counts as much as it does. */
function reasons(say, alpha) {
  if (say.role !== "used") return `${say.why}.`;
  const cause = say.causes.length ? ` Its state is degraded (${say.causes.map(words).join(", ")}), which halves its weight.` : "";
  if (say.weight >= 0.999) return `believed fully: what it delivered is as usual as can be (p ${number(say.p_value)}).${cause}`;
  return `believed with weight ${number(say.weight, 2)}: its p-value is ${number(say.p_value)}; at ${alpha} or less it would be refused.${cause}`;
}

function table(found, sensor) {
  const largest = Math.max(1, ...found.sensors.map((one) => Math.abs(one.contribution ?? 0)));
  const heading = found.contributions_are ? words(found.contributions_are) : "contribution";
  const columns = ["Sensor", "Why", "Weight", "p own", "p others", heading, "Without it"];
  return el("table.says.stacked", {},
    el("caption", {}, found.classes ? `The ${heading} is in log-odds: to the left for ${words(found.classes[0])}, to the right for ${words(found.classes[1])}.` : "What each sensor had to say."),
    el("thead", {}, el("tr", {}, columns.map((one) => el("th", { scope: "col" }, one)))),
    el("tbody", {}, found.sensors.map((one) => el("tr", { "aria-current": one.sensor === sensor && "true" },
      el("th", { scope: "row" }, el("a", { href: `/sensors/${one.sensor}?event=${found.event.id}` }, `Sensor ${one.sensor}`)),
      el("td", {}, one.why),
      el("td.number", { data: { name: "weight" } }, number(one.weight, 2)),
      el("td.number", { data: { name: "p own" } }, number(one.p_own)),
      el("td.number", { data: { name: "p others" } }, number(one.p_others)),
      el("td", { data: { name: heading } }, balance(one.contribution, largest)),
      el("td", { class: one.without.label === found.event.label ? "quiet" : "other", data: { name: "without it" } }, without(one.without))))));
}

/** A bar to either side of nothing. */
function balance(value, largest) {
  const bar = el("span", { class: value < 0 ? "first" : "second" });
  const share = 50 * Math.min(1, Math.abs(value ?? 0) / largest);
  bar.style.width = `${share}%`;
  bar.style.left = `${value < 0 ? 50 - share : 50}%`;
  return el("span.balance", {}, el("span.track", { "aria-hidden": "true" }, bar), el("span.number", {}, number(value, 2)));
}

/** The segment and what it is most like, side by side. */
function neighbours(found, say) {
  const { event } = found;
  // Without the sound there is neither a picture nor anything to compare.
  if (found.same === null) return el("p.note.degraded", {}, found.why_not);
  const own = soundFigure({ recording: event.recording, start: event.start_sample, stop: event.stop_sample, sensor: say.sensor },
    `the segment of event ${event.id}, sensor ${say.sensor}`, { caption: el("strong", {}, "This segment") });
  const near = say.nearest.map((one, n) => reference(found, say, one, `${n + 1}. nearest`));
  const refused = say.nearest_refused && reference(found, say, say.nearest_refused, "nearer, but refused");
  return el("section", { "aria-label": "Nearest references" },
    el("h3", {}, "What it is most like, of all that the model was learned from"),
    !near.length && el("p.note", {}, say.role === "absent" ? "The sensor did not deliver this segment, so there is nothing to compare." : "The model has no reference of this sensor."),
    el("div.neighbours", {}, own, refused, near));
}

function reference(found, say, one, title) {
  const name = `${one.recording} at ${one.seconds} s, sensor ${say.sensor}`;
  const about = [el("strong", {}, title), el("span", {}, one.label === null ? "no label" : words(one.label)),
    el("small", {}, `distance ${number(one.distance, 2)} · ${one.recording}, ${one.seconds.toFixed(1)} s`),
    one.refused && el("span.refused.degraded", {}, shape("degraded"), `training refused it: ${one.refused}`)];
  if (!one.sound) return el("figure.sound", {}, el("figcaption", {}, about), el("div.picture", {}, el("p.missing", {}, one.why_silent)));
  const place = one.sound.replace("/api/v1", "").replace(/sound$/, "spectrogram");
  return figure(`${one.sound}?sensor=${say.sensor}`, () => get(place, { sensor: say.sensor }), say.sensor, name, about);
}
