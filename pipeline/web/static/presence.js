// The headline of Now: whether somebody is there, or why that is not known.

import { clock, counted, day, el, long, percent, probabilityText, words } from "./dom.js";
import { shownName } from "./names.js";
import { ROLES } from "./states.js";

const SILENT = {
  simulated: "The simulated array has ended ([source] length); restart gemmed.",
  pcm: "Check the program that sends the sound, and its connection.",
  soundcard: "Check that the sound card is plugged in, then its driver.",
  folder: "Put a sound file into the watched folder.",
  stream: "Check the broker, and gemmed publish at the array.",
};

/** Local hours and minutes, with the date unless it is that of `now`. */
export function moment(iso, now = new Date().toISOString()) {
  const same = day(iso).slice(0, 10) === day(now).slice(0, 10);
  return same ? clock(iso).slice(0, 5) : day(iso);
}

const seconds = (from, to) => Math.max(0, (Date.parse(to) - Date.parse(from)) / 1000);
const since = (iso, now) => `since ${moment(iso, now)} (${long(seconds(iso, now))})`;

/** What the headline says for a status: `kind`, `title`, `lines` below it, and `sensors` during a passage. */
export function standing(status, decision = null) {
  if (!status) return { kind: "unknown", title: "No status yet", lines: ["The daemon is starting, or it is not running. gemmed run starts it."] };
  if (status.running === false) {
    return { kind: "unknown", title: "Not running", lines: [`The last status is from ${moment(status.time)}. gemmed run starts the daemon.`] };
  }
  if (!status.sensors.some((one) => one.delivers)) return silent(status);
  if (!status.usable_sensors) return unusable(status);
  if (status.presence.passage) return passing(status);
  if (status.presence.somebody === null) return undecided(status, decision);
  return {
    kind: "nobody", title: "Nobody",
    lines: [status.presence.since && since(status.presence.since, status.time), usable(status), likely(status.presence)],
  };
}

const likely = ({ probability }) => probability !== null && `Probability that somebody is there: ${percent(probability).replace(" ", "\u00a0")}.`;

function usable(status) {
  const all = status.sensors.length;
  return status.usable_sensors < all && `${status.usable_sensors} of ${counted(all, "sensor")} usable.`;
}

function silent(status) {
  const cure = SILENT[status.source] ?? SILENT.pcm;
  const waits = status.source === "folder";
  if (!status.sound_time) return { kind: waits ? "unknown" : "trouble", title: waits ? "Waiting for a file" : "No sound yet", lines: [cure] };
  const at = moment(status.sound_time, status.time);
  if (waits) return { kind: "unknown", title: "Waiting for a file", lines: [`The last sound arrived at ${at}. ${cure}`] };
  return {
    kind: "trouble", title: `No sound since ${at}`,
    lines: [`No sensor has delivered sound for ${long(seconds(status.sound_time, status.time))}. ${cure}`, "Passages are not detected until sound arrives again."],
  };
}

function unusable(status) {
  const causes = status.sensors.map((one) => {
    if (!one.delivers) return `Sensor ${one.sensor} delivers nothing.`;
    if (one.state === "off") return `Sensor ${one.sensor} is switched off (array.mask).`;
    return `Sensor ${one.sensor}: ${one.causes.map(words).join(", ") || one.state}${one.cures.length ? `; ${one.cures.join("; ")}` : ""}.`;
  });
  return { kind: "trouble", title: "No usable sensor", lines: ["Passages are not detected until at least one sensor is usable.", ...causes] };
}

function passing(status) {
  const { passage, since: began } = status.presence;
  const label = passage.label === null ? null : shownName(passage.label, status.names);
  const sure = passage.probability !== null && probabilityText(passage.probability);
  return {
    kind: "passage", title: label ?? "Somebody", probability: label && sure,
    lines: [
      !label && `No class yet: ${passage.reason ?? "not decided"}${sure ? ` (most probable class ${sure})` : ""}.`,
      [began && `for ${long(seconds(began, status.time))}, since ${clock(began)}`,
        passage.cadence_per_minute !== null && `${Math.round(passage.cadence_per_minute)} steps per minute`].filter(Boolean).join(" · "),
    ],
    sensors: status.sensors.map((one) => ({ ...one, used: passage.sensors_used.includes(one.sensor) })),
  };
}

/** No model yet, none that knows presence, or not enough sound. */
function undecided(status, decision) {
  if (!status.model_decides) {
    const next = status.learning === "in progress"
      ? "A first model is being trained; that takes a minute or two."
      : status.learning ?? "Label some passages, or give a model ([training] model); a first model is then trained.";
    return { kind: "unknown", title: "No model yet", lines: [`${next}`, "Until then only the health of the sensors is known."] };
  }
  if (!status.decisions) return { kind: "unknown", title: "Listening", lines: [`Model ${status.model} decides as soon as two seconds of sound have arrived.`] };
  return {
    kind: "unknown", title: "Presence not known",
    lines: [
      `Model ${status.model} gives a class for every segment, but does not know yet what nobody sounds like here. That takes two minutes of sound; with decisions.presence = false it stays so.`,
      decision && `Latest segment: ${decision.label === null ? `no class (${decision.reason})` : `${shownName(decision.label, status.names)} ${probabilityText(decision.probability)}`}.`,
    ],
  };
}

/** The headline as elements; however many lines there are, the sensors keep their place, and a link there the focus. */
export function headline(status, decision) {
  const { kind, title, probability, lines, sensors } = standing(status, decision);
  return el("div.presence-head", { data: { kind } },
    el("p.verdict", {}, title, probability && el("span.number", {}, ` ${probability}`)),
    el("div.lines", {}, lines.filter(Boolean).map((line) => el("p", {}, line))),
    sensors && weights(sensors));
}

/** The sensors of a passage with their weights in the last decision. */
function weights(sensors) {
  return el("ul.weights.plain", { "aria-label": "Weights of the sensors" }, sensors.map((one) => {
    const bar = el("span.bar", { "aria-hidden": "true" }, el("span"));
    bar.firstChild.style.width = `${Math.round(100 * (one.weight ?? 0))}%`;
    return el("li", {},
      el("a", { href: `/sensors/${one.sensor}` }, `Sensor ${one.sensor}`), bar,
      el("span.number", {}, weightOf(one)));
  }));
}

function weightOf(one) {
  if (!one.delivers) return "delivers nothing";
  if (one.weight === null) return "not used";
  if (one.role !== "used") return ROLES[one.role] ?? "not used";
  return `weight ${one.weight.toFixed(2)}`;
}
