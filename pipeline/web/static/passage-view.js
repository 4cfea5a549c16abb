// One passage for people: its verdict in a line, and all that is known of it.

import { colorOf } from "./class-colors.js";
import { clock, day, el, long, percent, probabilityText, time } from "./dom.js";
import { playButton } from "./sounds.js";
import { ROLES } from "./states.js";

const ENDS = {
  quiet: "nobody was heard any more",
  "background changed": "closed: heard for too long to be a passage",
  "recording ended": "the recording ended",
  interrupted: "the program was interrupted",
};
const SOUND = { partly: "only part of the sound is kept", gone: "its sound is no longer kept" };

const address = (passage, query) => `/api/v1/passages/${encodeURIComponent(passage.passage)}/clip?${new URLSearchParams(query)}`;
export const timelineOf = (passage) => `/timeline?at=${encodeURIComponent(passage.start_time)}`;
export const reviewOf = (passage) => `/review?passage=${encodeURIComponent(passage.passage)}`;

/** The class in words; without one, that somebody was there. */
export const nameOf = (passage) => passage.name ?? "Somebody, no class";

/** Colored swatch and name; what a person said counts before what was decided. */
export function verdict(passage, classes) {
  const swatch = el("span.class-swatch", { "aria-hidden": "true" });
  swatch.style.background = `var(${colorOf(passage.labeled?.label ?? passage.label, classes)})`;
  return el("span.verdict-line", {}, swatch, el("strong", {}, nameOf(passage)));
}

/** A button that plays a passage, or why there is nothing to play. */
export function listen(passage, query = { mix: true }, name = `the passage at ${clock(passage.start_time)}`) {
  if (passage.sound === "gone") return el("span.quiet.no-sound", { title: SOUND.gone }, "no sound");
  return playButton(address(passage, query), name);
}

const excluded = (one) =>
  `Sensor ${one.sensor} ${ROLES[one.role] ?? one.role}${one.share < 1 ? ` (${percent(one.share)} of the segments)` : ""}`;

const number = (value, digits = 2) => (value === null || value === undefined ? null : value.toFixed(digits));

function facts(rows) {
  return el("dl.facts", {}, rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function probabilities(passage, names, classes) {
  if (!passage.probabilities) return el("p.quiet", {}, passage.reason ? `No class: ${passage.reason}.` : "No class.");
  const rows = Object.entries(passage.probabilities).sort(([, one], [, other]) => other - one).map(([label, share]) => {
    const bar = el("span.bar", { "aria-hidden": "true" }, el("span"));
    bar.firstChild.style.width = `${100 * share}%`;
    bar.firstChild.style.background = `var(${colorOf(label, classes)})`;
    return el("li", {}, el("span", {}, names[label] ?? label), bar, el("span.number", {}, probabilityText(share)));
  });
  return el("ul.plain.class-shares", { "aria-label": "Probability of each class" }, rows);
}

/** When each sensor was loudest, counted from the first. */
function peaks(passage) {
  const first = passage.peaks[0]?.seconds ?? 0;
  return passage.peaks.map((one) =>
    `Sensor ${one.sensor} ${one.seconds === first ? "first" : `+${number(one.seconds - first, 1)} s`}${one.level_db === null ? "" : ` (${number(one.level_db, 0)} dB)`}`).join(", ");
}

const withError = (value, error, unit) => `${number(value, 1)} ± ${number(error, 1)} ${unit}`;

function movement(found) {
  if (!found) return [];
  return [
    ["direction", withError(found.direction_degrees, found.direction_error_degrees, "°")],
    ["speed", withError(found.speed_mps, found.speed_error_mps, "m/s")],
    ["nearest point", withError(found.nearest_m, found.nearest_error_m, "m from the center")],
  ];
}

const logOdds = (evidence) => Object.entries(evidence).map(([label, value]) => `${label} ${value === null ? "ruled out" : number(value)}`).join(", ");

/** All that is known of a passage; `control` is its label control. */
export function details(passage, { names, classes, control, close }) {
  const heading = el("h2", { tabIndex: -1 }, verdict(passage, classes), passage.probability === null ? "" : ` ${probabilityText(passage.probability)}`);
  const sensors = [...new Set([...passage.sensors_used, ...passage.sensors_excluded.map((one) => one.sensor)])].sort((one, other) => one - other);
  const panel = el("section.card.passage-details", { "aria-label": "Details of the passage", data: { passage: passage.passage } },
    el("div.row.apart", {}, heading, el("button.small", { type: "button", onclick: close, "aria-label": "Close the details" }, "Close")),
    el("div.row", {}, listen(passage), el("span", {}, time(passage.start_time, (text) => `${day(text).slice(0, 10)} ${clock(text)}`), ` – ${clock(passage.end_time)}, ${long(passage.duration_seconds)}`)),
    passage.sound !== "kept" && el("p.note", {}, `Note: ${SOUND[passage.sound]}.`),
    control.box,
    probabilities(passage, names, classes),
    facts([
      ["cadence", passage.cadence_per_minute === null ? "no clear rhythm" : `${number(passage.cadence_per_minute, 0)} steps per minute (confidence ${number(passage.cadence_confidence)})`],
      ["sensors used", passage.sensors_used.join(", ") || "none"],
      ["not used", passage.sensors_excluded.length ? el("ul.plain", {}, passage.sensors_excluded.map((one) => el("li", {}, excluded(one)))) : null],
      ["loudest at", peaks(passage)],
      ...movement(passage.movement),
      ["end", passage.end === null ? "going on" : ENDS[passage.end] ?? passage.end],
    ]),
    el("details", {}, el("summary", {}, "Evidence"), facts([
      ["presence", passage.presence === null ? null : `${percent(passage.presence)} on average`],
      ["segments", `${passage.segments}, ${passage.decided} of them with a class`],
      ["log-probabilities", logOdds(passage.evidence)],
      ["p-value", passage.p_known === null ? null : `${number(passage.p_known, 3)} (small: unlike every class)`],
      ["reason", passage.reason],
      ["model", passage.model ? el("a", { href: `/models?model=${encodeURIComponent(passage.model)}` }, passage.model) : "none"],
      ["recording", passage.parts.map((part) => part.recording).join(", then ")],
      ["id", passage.passage],
    ])),
    passage.sound !== "gone" && el("details", {}, el("summary", {}, "Sound of each sensor"),
      el("ul.plain", {}, sensors.map((sensor) => el("li.row", {}, listen(passage, { sensor }, `sensor ${sensor}`), `Sensor ${sensor}`))),
      el("p", {}, el("a", { href: address(passage, {}), download: `${passage.passage}.flac` }, "All sensors as FLAC"))),
    el("div.row", {}, el("a.button", { href: timelineOf(passage) }, "Timeline"), passage.sound !== "gone" && el("a.button.operate", { href: reviewOf(passage) }, "Review")));
  return { panel, heading };
}
