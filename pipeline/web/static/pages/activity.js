// What happened: passages, faults, models, trouble with storage and outputs; a fault and its recovery are one entry.

import { get } from "../api.js";
import { clock, counted, day, el, empty, failed, loading, long, replace, settle, words } from "../dom.js";
import * as live from "../live.js";
import { badge, shape } from "../states.js";

const KINDS = [["passage", "Passages"], ["sensor", "Sensors"], ["model", "Models"], ["system", "System"]];
// These come all the time and are no activity; a change of a passage in progress is on Now.
const NO_ACTIVITY = new Set(["decision", "tick", "paced", "passage_updated", "presence_audited", "fault_opened", "fault_closed", "trust_changed"]);
const SOON_MS = 5000;

export async function show(root) {
  const list = activityList();
  const open = el("section.card.open-faults", { "aria-label": "Open faults" });
  const choice = el("div.choices", { role: "group", "aria-label": "Show" }, KINDS.map(([kind, name]) =>
    el("button", { type: "button", "aria-pressed": "false", data: { kind }, onclick: (event) => {
      const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
      event.currentTarget.setAttribute("aria-pressed", String(on));
      list.only([...choice.querySelectorAll("[aria-pressed=true]")].map((one) => one.dataset.kind));
    } }, name)));
  replace(root, el("div.head", {}, el("h1", {}, "Activity"), choice), el("div.stack", {}, open, list.box));
  const stands = (status) => {
    const fresh = open.cloneNode();
    fresh.append(...openFaults(status));
    settle(open, fresh);
  };
  const { status, running } = await get("/status");
  stands(status && { ...status, running });
  await list.load();
  const stops = [
    live.on("status", stands),
    live.on("events", (events) => { if (events.some((one) => !NO_ACTIVITY.has(one.type))) list.soon(); }),
    list.close,
  ];
  return () => stops.forEach((stop) => stop());
}

/** What needs attention now, from the status. */
function openFaults(status) {
  const found = status && status.running !== false ? troubles(status) : null;
  if (!found) return [el("h2", {}, "Open faults"), el("p.quiet", {}, "The daemon is not running: open faults are not known.")];
  if (!found.length) return [el("p.row", {}, badge("good", "No open faults"))];
  return [el("h2", {}, counted(found.length, "open fault")), el("ul.plain", {}, found)];
}

function troubles(status) {
  const line = (state, what, cure) => el("li", {}, badge(state), el("div", {}, what, cure && el("p.quiet", {}, cure)));
  const silent = !status.sensors.some((one) => one.delivers);
  const sensors = status.sensors.filter((one) => ["bad", "degraded"].includes(one.state)).map((one) =>
    line(one.state, [el("a", { href: `/sensors/${one.sensor}` }, `Sensor ${one.sensor}`), `: ${one.causes.map(words).join(", ")}`,
      one.since && ` · since ${moment(one.since)}`], one.cures.join("; ")));
  return [
    silent && line("bad", status.sound_time ? `No sound since ${moment(status.sound_time)}` : "No sound yet", "Check the source of the sound."),
    !silent && !status.usable_sensors && line("bad", "No usable sensor", "Passages are not detected until a sensor is usable."),
    !status.journal_writable && line("bad", "The journal cannot be written", "Free disk space; check the disk and its permissions."),
    ...sensors,
  ].filter(Boolean);
}

/** Local time; with the date unless it is today. */
const moment = (iso) => (day(iso).slice(0, 10) === day(new Date()).slice(0, 10) ? clock(iso).slice(0, 5) : day(iso));

function activityList() {
  const rows = el("ul.activity.plain");
  const note = el("div");
  const more = el("button", { type: "button", hidden: true, onclick: () => older() }, "Older");
  const box = el("section.card", { "aria-label": "Entries" }, rows, note, more);
  let kinds = [];
  let entries = null; // all that are loaded, the newest first
  let next = null; // where the older ones begin
  let asked = 0;
  let timer = null;
  let closed = false;

  /** Load the newest entries; older ones that are there stay. */
  async function load() {
    const mine = ++asked;
    if (!entries) replace(note, loading("activity"));
    try {
      const found = await get("/activity", { kind: kinds });
      if (closed || mine !== asked) return;
      const older = (entries ?? []).filter((one) => found.next !== null && one.begin <= found.next);
      if (!entries || found.next === null) next = found.next;
      entries = [...found.entries, ...older];
      show();
    } catch (error) {
      if (!closed && mine === asked && !entries) replace(note, failed(error, load));
    }
  }

  async function older() {
    const before = next;
    more.disabled = true;
    try {
      const found = await get("/activity", { kind: kinds, before });
      if (closed || before !== next) return;
      entries = [...entries, ...found.entries];
      next = found.next;
      show();
    } catch (error) {
      if (!closed) replace(note, failed(error, older));
    } finally {
      more.disabled = false;
    }
  }

  function show() {
    const fresh = rows.cloneNode();
    fresh.append(...withDays(entries));
    settle(rows, fresh);
    more.hidden = next === null;
    replace(note, !entries.length && next === null && empty("No activity yet", "Passages, faults, models and trouble with storage or outputs appear here."));
    // A portion may have only the ends of older entries.
    if (!entries.length && next !== null) older();
  }

  return {
    box, load,
    only(chosen) {
      [kinds, entries, next] = [chosen, null, null];
      rows.replaceChildren();
      more.hidden = true;
      load();
    },
    /** Load the newest entries again, at most every few seconds. */
    soon() {
      timer ??= setTimeout(() => { timer = null; load(); }, SOON_MS * (0.5 + Math.random()));
    },
    close() { closed = true; clearTimeout(timer); },
  };
}

/** Entries with a heading for each day. */
function withDays(entries) {
  let last = null;
  return entries.flatMap((one) => {
    const date = day(one.begin).slice(0, 10);
    const heading = date !== last && el("li.day", {}, el("h2", {}, date));
    last = date;
    return [heading, entry(one)].filter(Boolean);
  });
}

function entry(one) {
  const link = one.passage ? `/history?passage=${encodeURIComponent(one.passage)}` : one.sensor ? `/sensors/${one.sensor}` : one.kind === "model" ? "/models" : null;
  return el("li.entry", { data: { kind: one.kind, severity: one.severity, open: one.is_open } },
    el(`span.mark.${one.is_open ? one.severity : "past"}`, { "aria-hidden": "true" }, symbol(one)),
    el("time", { datetime: one.begin, title: day(one.begin) }, clock(one.begin)),
    el("div", {},
      el("p", {}, link ? el("a", { href: link }, one.text) : one.text),
      el("p.quiet", {}, lasting(one))));
}

const symbol = (one) => (one.kind === "passage" ? "●" : one.severity === "news" ? "○" : shape(one.severity));

/** How long it lasted and how it ended, in a few words. */
function lasting(one) {
  const time = one.seconds ? long(one.seconds) : null;
  if (one.is_open) return `${one.count > 1 ? `${one.count} times, ` : ""}goes on`;
  if (one.count > 1) return `${one.count} times${time ? `, ${time} in all` : ""}, ${one.ending ?? "last"} ${clock(one.end)}`;
  if (one.kind === "passage") return time;
  return [time && (one.end ? `for ${time}` : time), one.ending && `${one.ending} ${clock(one.end)}`].filter(Boolean).join(", ");
}
