// What something on the timeline is, in words: for the panel, the list and whoever cannot see the drawing.

import { get, soundAddress } from "./api.js";
import { iso } from "./axis.js";
import { clock, counted, day, el, long, probabilityText, replace, time, words } from "./dom.js";
import { listen, reviewOf } from "./passage-view.js";
import { playButton } from "./sounds.js";
import { badge, ROLES } from "./states.js";
import { ABSENT, nameOf, SOUND } from "./timeline-chart.js";

const AROUND_SECONDS = 3;
const PLAYED_SECONDS = 10;
const ANOMALIES = {
  event_noticed: "Something new out there",
  fault_suspected: "A sensor against the others",
  common_fault: "The same fault everywhere",
  label_doubted: "A label that seems wrong",
};
const MASKS = { masked: "masked: its health is bad", off: "switched off by the operator" };

const decisions = (n) => `${n} decision${n === 1 ? "" : "s"}`;
const several = (about) => (about.n > 1 ? `, the worst of ${about.n} changes; zoom in to tell them apart` : "");

/** Title and reason of an item. */
export function told(item, data) {
  const { about } = item;
  switch (item.kind) {
    case "listening": return [about.kind === "heard" ? "heard" : ABSENT[about.kind] ?? words(about.kind), about.why + several(about)];
    case "sound": return [SOUND[about.kind], about.why];
    case "model": return [`model ${about.kind} decides`, ""];
    case "passage": return [nameOf(data, about), ofPassage(about)];
    case "label": return [`“${data.names[about.label] ?? words(about.label)}”`, `${about.who}, ${day(about.given)}, by ${about.via}${about.why ? `: ${about.why}` : ""}`];
    case "anomaly": return [ANOMALIES[about.kind], words(about.reason) + (about.n > 1 ? `, and ${about.n - 1} more; zoom in to tell them apart` : "")];
    case "decision": return about.label === null ? ["undecided", about.reason ?? ""] : [words(about.label), `${probabilityText(about.probability)} sure`];
    case "bin": return item.row.key === "undecided"
      ? [`undecided ${about.undecided} times`, ""]
      : [decisions(Object.values(about.labels).reduce((sum, n) => sum + n, 0)), Object.entries(about.labels).map(([label, n]) => `${words(label)} ${n}`).join(", ")];
    case "state": return [`sensor ${item.sensor} ${about.kind}`, words(about.why) + several(about)];
    case "mask": return [`sensor ${item.sensor} ${about.kind === "off" ? "off" : "masked"}`, MASKS[about.kind] + several(about)];
    default: return [`sensor ${item.sensor} refused ${about.refused[item.sensor - 1]} times`, "the screen did not believe what it delivered"];
  }
}

function ofPassage({ label, labeled, n, probability }) {
  if (n > 1) return "close together; zoom in to tell them apart";
  if (labeled) return `labeled by a person; the model: ${label === null ? "no class" : words(label)}`;
  return label === null ? "no class" : `probability ${probabilityText(probability)}`;
}

/** When, in words. */
export function when(item) {
  const length = item.end - item.begin;
  return length < 0.5 ? clock(iso(item.begin)) : `${clock(iso(item.begin))}, ${long(length)}`;
}

/** One line for a list, or to be read aloud. */
export function sentence(item, data) {
  const [title, why] = told(item, data);
  return `${item.row.title}: ${title}${why ? `, ${why}` : ""}; ${when(item)}`;
}

function facts(rows) {
  return el("dl.facts", {}, rows.filter(([, value]) => value !== null && value !== "" && value !== undefined)
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

const number = (value) => (typeof value === "number" ? Number(value.toPrecision(3)).toString() : String(value ?? "–"));
const evidence = (found) =>
  el("dl.facts", {}, Object.entries(found).map(([name, value]) => [
    el("dt", {}, words(name)),
    el("dd", {}, value && typeof value === "object" ? evidence(value) : number(value)),
  ]));

/** The place of an event in its recording, some seconds around it. */
function place(event, rateHz) {
  if (!event.recording) return null;
  const stop = event.stop_sample ?? event.sample ?? event.start_sample;
  if (stop === undefined || stop === null) return null;
  const start = event.type === "decision" ? event.start_sample : stop - AROUND_SECONDS * rateHz;
  const end = event.type === "decision" ? stop : stop + AROUND_SECONDS * rateHz;
  return { recording: event.recording, start: Math.max(0, Math.round(start)), stop: Math.round(end) };
}

/** Buttons that play a stretch: all sensors together, or one. */
function players({ recording, start, stop }, sensors) {
  const one = (sensor) => el("span.row", {}, playButton(soundAddress(recording, start, stop, sensor), sensor ? `sensor ${sensor}` : "all sensors"), sensor ? `sensor ${sensor}` : "all");
  return el("div.row", {}, el("span.quiet", {}, "Listen:"), [null, ...sensors].map(one));
}

function ofDecision(event) {
  return [
    event.sensors_used !== undefined && facts([["decided by", `${event.sensors_used} of ${counted(event.roles.length, "sensor")}`], ["reason", event.reason], ["model", el("a", { href: `/models?model=${event.model}` }, event.model)]]),
    el("ul.plain.roles", {}, event.roles.map((role, sensor) => el("li", {}, `sensor ${sensor + 1}: ${ROLES[role] ?? role}, weight ${number(event.weights[sensor])}, p = ${number(event.p_values[sensor])}`))),
  ];
}

/** What an event itself says, once it is there. */
function ofEvent(event, sensors, rateHz) {
  const where = place(event, rateHz);
  const decision = event.type === "decision";
  return [
    decision && ofDecision(event),
    event.evidence && Object.keys(event.evidence).length ? el("details", { open: true }, el("summary", {}, "Evidence"), evidence(event.evidence)) : null,
    event.cures?.length ? el("p", {}, `What to do: ${event.cures.join("; ")}.`) : null,
    where && players(where, sensors),
    el("p.row", {},
      decision && el("a.button.operate", { href: `/review?event=${event.id}` }, "Label it"),
      decision && el("a.button", { href: `/sensors/1?event=${event.id}` }, "Why this decision"),
      el("a", { href: `/api/v1/events/${event.id}` }, `event ${event.id}`)),
  ];
}

/** The panel: fills itself when the event has come. `close` is called when somebody wants it gone. */
export function details(item, { data, rateHz, close }) {
  const [title, why] = told(item, data);
  const { about } = item;
  const sensors = data.sensors.map((one) => one.sensor);
  const more = el("div.stack");
  const heading = el("h2", { tabIndex: -1 }, title);
  const panel = el("section.card.details", { "aria-label": "Details", onkeydown: (event) => { if (event.key === "Escape") close(); } },
    el("div.title", {}, heading, el("button", { type: "button", onclick: close, "aria-label": "Close details" }, "Close")),
    facts([
      ["row", item.row.title],
      ["when", time(iso(item.begin), (text) => `${day(text).slice(0, 10)} ${clock(text)}`)],
      ["until", item.end - item.begin >= 0.5 ? time(iso(item.end)) : null],
      ["length", item.end - item.begin >= 0.5 ? long(item.end - item.begin) : null],
      ["why", why],
    ]),
    item.kind === "state" && el("p", {}, badge(about.kind), " ", el("a", { href: `/sensors/${item.sensor}` }, `sensor ${item.sensor}`)),
    more);
  if (item.kind === "label") replace(more, players({ recording: about.recording, start: about.start_sample, stop: Math.min(about.stop_sample, about.start_sample + PLAYED_SECONDS * rateHz) }, sensors));
  if (item.kind === "passage" && about.n === 1) fill(more, "passage", get(`/passages/${encodeURIComponent(about.passage)}`), passageFacts);
  if (item.kind === "model") replace(more, el("p", {}, el("a.button", { href: `/models?model=${about.kind}` }, "About this model")));
  if (about.event) fill(more, "event", get(`/events/${about.event}`), (event) => ofEvent(event, sensors, rateHz));
  return { panel, heading };
}

/** Show what the server answers, as `write` makes it. */
function fill(box, what, answer, write) {
  replace(box, el("p.quiet", { role: "status" }, `Loading the ${what} …`));
  answer.then((found) => replace(box, write(found)), (error) => replace(box, el("p.note.bad", {}, error.message)));
}

const passageFacts = (passage) => [
  el("div.row", {}, el("span.quiet", {}, "Listen:"), listen(passage)),
  facts([
    ["cadence", passage.cadence_per_minute === null ? null : `${Math.round(passage.cadence_per_minute)} steps per minute`],
    ["sensors used", passage.sensors_used.join(", ") || "none"],
  ]),
  el("p.row", {},
    el("a.button", { href: `/history?passage=${encodeURIComponent(passage.passage)}` }, "All about it in History"),
    passage.sound !== "gone" && el("a.button.operate", { href: reviewOf(passage) }, "Label it")),
];
