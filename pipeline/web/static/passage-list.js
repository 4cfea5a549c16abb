// The newest passages as rows: what passed, when, how it sounds, and what a person says of it.

import { get } from "./api.js";
import { clock, day, el, failed, long, probabilityText, replace, time } from "./dom.js";
import * as live from "./live.js";
import { shownName } from "./names.js";
import * as outbox from "./outbox.js";
import { labelControl } from "./passage-label.js";
import { listen } from "./passage-view.js";

const TYPES = new Set(["passage_started", "passage_updated", "passage_ended"]);
const ANEW = new Set(["model_changed", "journal_replaced"]);

/** A passage of the API from its event; its sound may still be being written. */
function fromEvent(event, rateHz) {
  const start = Date.parse(event.time) - (1000 * (event.sample - event.start_sample)) / rateHz;
  const part = { passage: event.passage, recording: event.recording, start_sample: event.start_sample, stop_sample: event.stop_sample };
  const length = event.end_seconds - event.start_seconds;
  return {
    passage: event.passage, label: event.label, probability: event.probability, reason: event.reason,
    start_time: new Date(start).toISOString(), duration_seconds: length,
    end: event.end ?? null, labeled: null, sound: "kept", parts: [part],
  };
}

const overlaps = (passage, event) => passage.parts.some((part) =>
  part.recording === event.recording && event.start_sample < part.stop_sample && event.stop_sample > part.start_sample);

/** The newest passages, kept up to date by the events of the stream. */
export function passageList({ most, status }) {
  const list = el("ul.passages.plain");
  const rows = new Map(); // by id of the passage
  let passages = [];
  let words = [];
  let known = 0;
  let lastId = 0;
  const names = () => status()?.names ?? {};

  async function load() {
    try {
      await read();
    } catch (error) {
      if (!passages.length) replace(list, el("li", {}, failed(error, load)));
    }
  }

  async function read() {
    const [found, said, labels] = await Promise.all([get("/passages", { most }), get("/labels/words"), get("/labels", { most: 1 })]);
    // Controls offer the labels of the time when they were made.
    const fresh = said.words.filter((one) => one.key !== null);
    if (JSON.stringify(fresh) !== JSON.stringify(words)) rows.clear();
    words = fresh;
    [passages, lastId] = [found.passages, found.last_id];
    known = Math.max(known, labels.labels[0]?.number ?? 0);
    show();
    take(live.since(lastId));
  }

  function take(events) {
    const fresh = events.filter((event) => event.id > lastId);
    if (!fresh.length) return;
    lastId = fresh.at(-1).id;
    if (fresh.some((event) => ANEW.has(event.type) || (event.type === "label_given" && event.takes_back !== null))) return void load();
    const before = JSON.stringify(passages);
    for (const event of fresh) {
      if (TYPES.has(event.type) && !takePassage(event)) return void load();
      if (event.type === "label_given" && event.label !== null) takeLabel(event);
    }
    if (JSON.stringify(passages) !== before) show();
  }

  /** Whether the event says all; a passage that goes on in another recording is joined by the server. */
  function takePassage(event) {
    const rateHz = status()?.rate_hz;
    const place = passages.findIndex((one) => one.parts.some((part) => part.passage === event.passage));
    if (!rateHz || (place < 0 ? passages[0]?.end === "recording ended" : passages[place].parts.length > 1)) return false;
    const fresh = fromEvent(event, rateHz);
    if (place >= 0) passages[place] = { ...fresh, labeled: passages[place].labeled };
    else passages = [fresh, ...passages].slice(0, most);
    return true;
  }

  function takeLabel({ number, label, who, ...event }) {
    known = Math.max(known, number);
    passages = passages.map((one) => (overlaps(one, event) ? { ...one, labeled: { number, label, who, name: shownName(label, names()) } } : one));
  }

  function show() {
    const ids = new Set(passages.map((one) => one.passage));
    for (const id of rows.keys()) if (!ids.has(id)) rows.delete(id);
    for (const one of passages) {
      if (!rows.has(one.passage)) rows.set(one.passage, passageRow(one, { words, names, known: () => known }));
      rows.get(one.passage).show(one);
    }
    const made = passages.map((one) => rows.get(one.passage).row);
    // Rows that stay are not moved: somebody may have the focus there.
    list.querySelector(":scope > :not([data-passage])")?.remove();
    for (const old of [...list.children]) if (!made.includes(old)) old.remove();
    made.forEach((row, n) => { if (list.children[n] !== row) list.insertBefore(row, list.children[n] ?? null); });
    if (!made.length) replace(list, el("li.quiet", {}, "No passages yet."));
  }

  function answered(what) {
    const { answer } = what;
    if (answer?.number) known = Math.max(known, answer.number);
    for (const row of rows.values()) row.answered(what);
  }

  let connected = true;
  const stops = [
    live.on("events", take),
    live.on("connection", (state) => {
      if (state === "live" && !connected) load();
      connected = state === "live";
    }),
    outbox.on(answered),
  ];
  return { list, load, close: () => stops.forEach((stop) => stop()) };
}

/** One passage: play, what passed and when, and the control that labels it. */
function passageRow(passage, { words, names, known }) {
  const play = el("span.play-place");
  const what = el("div.what");
  const control = labelControl(passage, { words, known });
  const row = el("li", { data: { passage: passage.passage } }, play, what, control.box);
  let shown = "";
  let labeled = JSON.stringify(passage.labeled);
  let heard = null;

  function write(one) {
    const name = one.label === null ? "Somebody" : shownName(one.label, names());
    const sure = one.label === null ? one.reason ?? "no class" : probabilityText(one.probability);
    const today = day(one.start_time).slice(0, 10) === day(new Date()).slice(0, 10);
    replace(what,
      el("p", {}, el("a", { href: `/history?passage=${encodeURIComponent(one.passage)}` }, el("strong", {}, name)), " ", el("span", { class: one.label === null ? "quiet" : "number" }, sure)),
      el("p.quiet", {}, time(one.start_time, today ? clock : day), one.end === null ? el("span.going-on", {}, " · going on") : ` · ${long(one.duration_seconds)}`));
  }

  /** A button that plays stays while it does. */
  function offerSound(one) {
    const sound = one.end === null ? "" : one.sound;
    if (sound === heard) return;
    heard = sound;
    replace(play, sound && listen(one));
  }

  return {
    row,
    answered: control.answered,
    show(one) {
      const { labeled: given, ...rest } = one;
      if (labeled !== (labeled = JSON.stringify(given))) control.update(given);
      if (shown === (shown = JSON.stringify(rest))) return;
      write(one);
      offerSound(one);
      // A label covers what is known of a passage: all of it, once it has ended.
      control.box.hidden = one.end === null;
    },
  };
}
