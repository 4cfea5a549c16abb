// One sensor: its state with the evidence, an explanation of a decision, and its past.

import { get } from "../api.js";
import { curve, stateBand, timeAxis } from "../charts.js";
import { counted, day, el, empty, failed, loading, long, replace, time, words } from "../dom.js";
import { explained } from "../explanation.js";
import * as live from "../live.js";
import { badge } from "../states.js";

const HOUR_MS = 3600000;
const RANGES = [["6 h", 6], ["24 h", 24], ["7 d", 168], ["30 d", 720]];
const LIVENESS = {
  initialising: "not enough sound yet", healthy: "healthy", alarmed: "a fault has just opened",
  escalated: "the fault stays", failed: "failed: the fault has stayed; repair it", recovering: "recovering, not for long yet",
  muted: "switched off, but measured",
};
const QUIETEST_DBFS = -100;
const SOON_MS = 60000;
const AGAIN_MS = 3000;

export async function show(root, text) {
  const number = Number(text);
  const now = el("section.card.live", { "aria-label": "Now" });
  const why = el("section.card", { "aria-label": "Explanation of a decision" });
  const past = el("section.card", { "aria-label": "History" });
  let found = await get(`/sensors/${number}`);
  const stand = () => replace(now, state(found));
  replace(root,
    el("div.head", {}, el("h1", {}, `Sensor ${number}`),
      el("div.choices", { role: "navigation", "aria-label": "Sensors" }, Array.from({ length: found.sensors }, (_, n) =>
        el("a.button", { href: `/sensors/${n + 1}`, "aria-current": n + 1 === number && "page" }, `Sensor ${n + 1}`)))),
    el("div.stack", {}, now, why, past));
  document.title = `Sensor ${number} · gemmed`;
  stand();
  explain(why, number, found.last_decision);
  history(past, number);
  return live.follow(found.event ?? 0, async (events) => {
    if (!events.some((event) => event.type === "state_changed" && event.sensor === number)) return;
    found = await get(`/sensors/${number}`).catch(() => found);
    stand();
  });
}

function state(found) {
  if (found.told === null) return empty("No state yet", "The state of a sensor is known some seconds after the first sound.");
  const since = found.since ?? found.told;
  return [
    el("div.row", {}, el("h2", {}, "Now"), badge(found.state), el("span.quiet", {}, LIVENESS[found.liveness] ?? "")),
    el("p", {}, "since ", time(since, day), ` (${long((Date.now() - Date.parse(since)) / 1000)}) · event ${found.event}`),
    found.causes.length
      ? el("ul.causes.plain", {}, found.causes.map((one) => el("li", {},
          el("div.row", {}, badge(one.state, words(one.cause)), el("strong", {}, one.meaning)),
          el("dl.facts", {}, el("dt", {}, "Evidence"), el("dd", {}, one.evidence_words || "–"),
            one.since && [el("dt", {}, "Seen since"), el("dd", {}, time(one.since, day))],
            el("dt", {}, "What to do"), el("dd", {}, one.cure)))))
      : el("p.quiet", {}, found.state === "good" ? "No faults." : found.state === "off" ? "Switched off in the settings (array.mask); it is measured all the same." : "Not enough sound yet to say."),
  ];
}

/** The decision of the address, or the last one. */
function explain(box, number, last) {
  const asked = Number(new URLSearchParams(location.search).get("event")) || null;
  const input = el("input", { type: "number", min: "1", step: "1", required: true, name: "event", id: "event", value: asked ?? last ?? "" });
  const told = el("div.told-why");
  let wanted = null;
  async function look(event, again = false) {
    wanted = event;
    if (!again) replace(told, loading("the explanation"));
    try {
      const found = await get(`/events/${event}/explanation`);
      if (wanted !== event || !told.isConnected) return;
      replace(told, explained(found, number));
      // Sound is stored in pieces: that of the last seconds is there soon.
      const fresh = Math.abs(Date.now() - Date.parse(found.event.time)) < SOON_MS;
      if (found.same === null && fresh) setTimeout(() => wanted === event && told.isConnected && look(event, true), AGAIN_MS);
    } catch (error) {
      replace(told, failed(error, () => look(event)));
    }
  }
  async function newest() {
    const found = await get(`/sensors/${number}`).catch(() => null);
    if (!found?.last_decision) return;
    input.value = found.last_decision;
    remember(number, null);
    look(found.last_decision);
  }
  const form = el("form.row", { onsubmit: (submitted) => { submitted.preventDefault(); remember(number, input.value); look(input.value); } },
    el("label", { for: "event" }, "Decision"), input, el("button", { type: "submit" }, "Explain"),
    el("button", { type: "button", onclick: newest }, "The last one"));
  replace(box, el("div.head", {}, el("h2", {}, "Explanation of a decision"), form), told);
  if (asked ?? last) look(asked ?? last);
  else replace(told, empty("No decision can be explained yet", "That takes a model that decides, and its sound, which must be kept (storage.sound)."));
}

/** What is looked at can be sent to somebody. */
const remember = (number, event) => window.history.replaceState({}, "", `/sensors/${number}${event ? `?event=${event}` : ""}`);

function history(box, number) {
  const told = el("div.past");
  const buttons = RANGES.map(([name, hours]) => el("button", { type: "button", "aria-pressed": "false", onclick: () => look(hours) }, name));
  async function look(hours) {
    buttons.forEach((button, n) => button.setAttribute("aria-pressed", String(RANGES[n][1] === hours)));
    replace(told, loading("the history"));
    const end = Date.now();
    const begin = end - hours * HOUR_MS;
    try {
      const found = await get(`/sensors/${number}/history`, { begin: new Date(begin).toISOString(), end: new Date(end).toISOString() });
      replace(told, past(found, begin, end));
    } catch (error) {
      replace(told, failed(error, () => look(hours)));
    }
  }
  replace(box, el("div.head", {}, el("h2", {}, "How it was"), el("div.choices", { role: "group", "aria-label": "How far back" }, buttons)), told);
  look(RANGES[0][1]);
}

function past(found, begin, end) {
  if (!found.bins.length && !found.faults.length) return empty("Nothing is known of this time", "The daemon did not run then, or has not run for a minute yet. Choose a longer time.");
  const bins = found.bins.map((one) => ({ ...one, at: Date.parse(one.time), ms: 1000 * one.seconds }));
  const level = bins.map((one) => ({ at: one.at, ms: one.ms, value: one.level_dbfs.mean, least: one.level_dbfs.min, most: one.level_dbfs.max }));
  const weight = bins.map((one) => ({ at: one.at, ms: one.ms, value: one.weight }));
  const levels = level.map((one) => one.value).filter((one) => one !== null);
  return [
    el("h3", {}, "State"), el("p.quiet", {}, shares(bins, end - begin)),
    stateBand(bins, begin, end, `States: ${shares(bins, end - begin)}`), timeAxis(begin, end),
    el("h3", {}, "Level, from the quietest to the loudest second"),
    curve(level, begin, end, { low: QUIETEST_DBFS, high: 0, unit: "dBFS", name: levels.length ? `Level: from ${Math.min(...levels).toFixed(0)} to ${Math.max(...levels).toFixed(0)} dBFS on average` : "Level: nothing was heard" }),
    timeAxis(begin, end),
    el("h3", {}, "Weight in decisions"),
    curve(weight, begin, end, { low: 0, high: 1, unit: "", name: "Weight: 1 counts fully, 0 not at all" }), timeAxis(begin, end),
    faults(found),
  ];
}

/** How much of the time in which state; and how much of it nobody knows. */
function shares(bins, ms) {
  const totals = {};
  for (const { states } of bins) for (const [name, seconds] of Object.entries(states)) totals[name] = (totals[name] ?? 0) + seconds;
  const known = Object.values(totals).reduce((sum, one) => sum + one, 0);
  const told = Object.entries(totals).sort((one, other) => other[1] - one[1]).map(([name, seconds]) => `${name} for ${long(seconds)}`);
  const unknown = ms / 1000 - known;
  return [...told, unknown > 60 ? `nothing known for ${long(unknown)}` : null].filter(Boolean).join(", ");
}

function faults(found) {
  if (!found.faults.length) return el("p.quiet", {}, "No faults in this time.");
  return el("details", { open: found.faults.length <= 12 }, el("summary", {}, found.more_faults ? `${found.faults.length} and more faults` : counted(found.faults.length, "fault")),
    el("ul.faults.plain", {}, found.faults.map((one) => el("li", {},
      el("strong", {}, words(one.cause)), `: ${one.meaning} · `, time(one.begin, day), " · ",
      one.end ? long((Date.parse(one.end) - Date.parse(one.begin)) / 1000) : el("span.bad", {}, "goes on"),
      el("small", {}, ` · ${one.evidence_words} · event ${one.event}`)))));
}
