// A queue of moments to label, the most instructive first: hear, press a key, the next is there.

import { get } from "../api.js";
import { el, empty, failed, loading, replace, words } from "../dom.js";
import { player, soundOf } from "../four-sounds.js";
import * as live from "../live.js";
import { mayOperate } from "../session.js";
import * as outbox from "../outbox.js";
import { decided, reasons, secondsInto, SOLO_KEYS, sounds } from "../review-view.js";

const CHOICES = "gemmed-review";
const AT_ONCE = 20;
const FEW = 6;
const LOOK_MS = 15000;
const APART_SECONDS = 30; // closer moments of a recording are one passage: who labels one has labelled the other
const LEAD_IN_SECONDS = 1.5;
const BLIND_MS = 500; // nobody has heard a moment so soon: a key that is pressed twice is a slip
const KEYS = [
  ["1 … 9", "label it, and go on"], ["N", "label it in your own words"], ["S", "skip it for now"], ["U", "undo: take back the last label and return to it"],
  ["Space", "play or pause"], ["← →", "a second back or on"], [[...SOLO_KEYS].map((code) => code.slice(3)).join(" "), "hear the first, second … sensor alone, and all again"],
  ["[ ]", "begin the label a second earlier, end it a second later"], ["0", "label only what is marked again"],
  ["A", "play by itself or not"], ["H", "half speed or full"], ["?", "these keys"],
];

const nameOf = (item) => `${item.recording}@${item.start_sample}`;
const samePassage = (item, other) =>
  item.recording === other.recording &&
  Math.max(item.start_sample - other.stop_sample, other.start_sample - item.stop_sample) < APART_SECONDS * item.rate_hz;

/** What a label was given to, which may be more than was asked. */
const labelled = ({ item, body }) => ({ ...item, start_sample: body.start_sample, stop_sample: body.stop_sample });

function remembered() {
  try {
    return { autoplay: true, speed: 1, ...JSON.parse(localStorage.getItem(CHOICES)) };
  } catch {
    return { autoplay: true, speed: 1 };
  }
}

export async function show(root) {
  const wantedEvent = Number(new URLSearchParams(location.search).get("event")) || null;
  const chosen = remembered();
  const skipped = new Set();
  const given = []; // in this visit: { item, key, body }, to be undone
  const spoken = []; // the same, undone or not: news of them is none
  let queue = [];
  let state = null; // the last answer of the server
  let view = null;
  let span = null; // what a label would cover, in samples
  let said = 0; // how often something was: an answer that was asked for before knows nothing of it
  let deaf = null; // until somebody can have heard what is shown
  let lookedAt = 0;
  let looking = false;
  let closed = false;

  const counters = el("p.review-counters", { role: "status" });
  const note = el("p.note", { hidden: true, role: "status" });
  const stage = el("section.review-stage", { "aria-label": "What is asked about" });
  const labels = el("div.review-labels.operate");
  const covers = el("span.quiet.number");
  const spokenAloud = el("p.unseen", { role: "status" });
  const playing = el("button.primary.wide", { type: "button", onclick: () => sound.toggle() });
  const autoplay = el("button", { type: "button", onclick: () => toggleAutoplay() }, "Autoplay");
  const speed = el("button", { type: "button", onclick: () => toggleSpeed() }, "Half speed");
  const undo = el("button.operate", { type: "button", onclick: (event) => { relax(event); takeBack(); } }, "Undo", el("kbd", {}, "U"));
  const skip = el("button", { type: "button", onclick: (event) => { relax(event); skipIt(); } }, "Skip", el("kbd", {}, "S"));
  const keys = keysDialog();
  const own = ownWordDialog((word, why) => label(word, { isNew: true, why }));
  const bar = el("div.review-bar", { hidden: true }, labels, el("div.row.review-tools", {}, playing, skip, undo));
  const options = el("div.row.review-options", {}, autoplay, speed,
    el("button", { type: "button", title: "Begin the label a second earlier ([)", "aria-label": "Begin the label a second earlier", onclick: () => extend(-1, 0) }, "◂ 1 s"),
    el("button", { type: "button", title: "End the label a second later (])", "aria-label": "End the label a second later", onclick: () => extend(0, 1) }, "1 s ▸"), covers,
    el("button.operate", { type: "button", onclick: () => own.begin() }, "Other word …", el("kbd", {}, "N")));
  replace(root,
    el("div.head", {}, el("h1", {}, "Review"), counters, el("button.review-help", { type: "button", onclick: () => keys.showModal() }, "Keys", el("kbd", {}, "?"))),
    note, stage, bar, spokenAloud, keys, own);

  const sound = player({ moved: (seconds) => view?.move(seconds), changed: (on) => showPlaying(on) });
  replace(stage, loading("what to review"));

  function remember() {
    try {
      localStorage.setItem(CHOICES, JSON.stringify(chosen));
    } catch { /* forbidden; then it is asked again */ }
  }

  function showPlaying(on) {
    replace(playing, on ? "❚❚ Pause" : "▶ Play", el("kbd", {}, "Space"));
  }

  function showChoices() {
    autoplay.setAttribute("aria-pressed", String(chosen.autoplay));
    speed.setAttribute("aria-pressed", String(chosen.speed !== 1));
  }

  function toggleAutoplay() {
    chosen.autoplay = !chosen.autoplay;
    remember();
    showChoices();
  }

  function toggleSpeed() {
    chosen.speed = chosen.speed === 1 ? 0.5 : 1;
    sound.faster(chosen.speed);
    remember();
    showChoices();
  }

  /** What is in the queue or waits to be sent need not be asked again. */
  function isNew(item) {
    const sent = outbox.waiting().filter((entry) => entry.item).map(labelled);
    return !skipped.has(nameOf(item)) && ![...queue, ...sent].some((other) => samePassage(item, other));
  }

  async function look({ event = null } = {}) {
    if (looking) return;
    looking = true;
    lookedAt = Date.now();
    try {
      const most = Math.min(100, AT_ONCE + queue.length + skipped.size);
      const saidBefore = outbox.waiting().length ? NaN : said;
      const found = await get("/review", { most, event });
      if (closed) return;
      const knows = saidBefore === said;
      const { labels_today, retraining, waiting } = knows || !state ? found : state;
      state = { ...found, labels_today, retraining, waiting };
      showLabels();
      const before = queue.length;
      const done = knows ? [] : given.map(labelled);
      for (const item of found.items) {
        if (item.asked === "wanted" || (isNew(item) && !done.some((other) => samePassage(item, other)))) queue.push(item);
      }
      if (!before) present();
      else prefetch();
      showCounters();
    } catch (error) {
      if (closed) return;
      if (event !== null && error.code === 404) {
        tellNote(error.message);
        looking = false;
        return look();
      }
      if (!queue.length) replace(stage, failed(error, () => look({ event })));
    } finally {
      looking = false;
    }
  }

  function prefetch() {
    for (const item of queue.slice(0, 3)) soundOf(item).catch(() => {});
  }

  function present() {
    const item = queue[0];
    sound.unload();
    bar.hidden = !item;
    stage.dataset.item = item ? nameOf(item) : "";
    stage.dataset.sound = "";
    if (!item) {
      view = null;
      return presentNothing();
    }
    span = [item.start_sample, item.stop_sample];
    bar.dataset.heard = "";
    clearTimeout(deaf);
    deaf = setTimeout(() => { bar.dataset.heard = "yes"; }, BLIND_MS);
    view = sounds(item, { sought: (seconds) => sound.seek(seconds), alone, classes: classes() });
    replace(stage, reasons(item), view.box, options, decided(item));
    spokenAloud.textContent = `Next: ${item.why.join("; ")}`;
    showCovers();
    showPlaying(false);
    undo.disabled = !given.length;
    load(item, view);
  }

  async function load(item, mine) {
    try {
      const loaded = await soundOf(item);
      if (view !== mine) return;
      mine.load(loaded.spectrogram);
      sound.load(loaded, Math.max(0, secondsInto(item, item.start_sample) - LEAD_IN_SECONDS));
      sound.faster(chosen.speed);
      stage.dataset.sound = "ready";
      if (chosen.autoplay) sound.play();
      prefetch();
    } catch (error) {
      if (view === mine) mine.fail(error, () => load(item, mine));
    }
  }

  function presentNothing() {
    if (skipped.size) {
      const again = el("button.primary", { type: "button", onclick: () => { skipped.clear(); replace(stage, loading("what you skipped")); look(); } }, "Look at them again");
      return replace(stage, empty(skipped.size === 1 ? "One moment is left, which you skipped" : `${skipped.size} moments are left, which you skipped`, again));
    }
    if (!state) return;
    const told = state.empty ?? { title: "All of these are done", cure: "New moments appear here by themselves." };
    replace(stage, empty(`Nothing to review: ${told.title.charAt(0).toLowerCase()}${told.title.slice(1)}`, told.cure));
  }

  const classes = () => (state?.words ?? []).filter((one) => one.learned).map((one) => one.word);

  function showLabels() {
    const made = state.words.slice(0, 9).map((one, n) =>
      el("button.review-label", { type: "button", title: one.learned ? null : "No class of the model: its sound is kept, but nothing is learned from it yet", data: { label: one.word, side: one.learned && n < 2 ? n : "" }, onclick: (event) => { relax(event); label(one.word); } },
        el("kbd", {}, n + 1), words(one.word)));
    if (made.length === labels.children.length && made.every((one, n) => one.dataset.label === labels.children[n].dataset.label)) return;
    replace(labels, made);
  }

  function showCounters() {
    if (!state) return;
    const waiting = outbox.waiting().length;
    const { enabled, new_labels: fresh, wanted } = state.retraining;
    const more = Math.max(0, wanted - fresh);
    const learning = !enabled ? "retraining is switched off" : more ? `${more} more until the next retraining` : "enough for the next retraining";
    const left = Math.max(queue.length, state.waiting);
    const bar = el("span.bar", { "aria-hidden": "true" }, el("span"));
    bar.firstChild.style.width = `${100 * Math.min(1, fresh / wanted)}%`;
    replace(counters,
      el("span", { data: { count: "today" } }, `${state.labels_today} labelled today`), " · ", enabled && bar, learning, " · ",
      el("span", { data: { count: "waiting" } }, `${left} ${left === 1 ? "passage waits" : "passages wait"}`),
      waiting ? el("strong.degraded", { data: { count: "unsent" } }, ` · ${waiting} kept here, to be sent`) : null);
  }

  /** So many labels more; and so much more for training to learn of, which also learns of corrections. */
  function count(labelled, news = labelled) {
    state.labels_today = Math.max(0, state.labels_today + labelled);
    state.retraining.new_labels += news;
    state.waiting = Math.max(0, state.waiting - labelled);
  }

  function tellNote(...told) {
    replace(note, ...told);
    note.hidden = false;
  }

  /** Keys belong to the page again after a click. */
  function relax(event) {
    if (event.detail) event.currentTarget.blur();
  }

  function label(word, { isNew: fresh = false, why = "" } = {}) {
    const item = queue[0];
    if (!item || !bar.dataset.heard) return;
    if (!mayOperate()) return tellNote("You are logged in as a viewer; labelling needs the role operator.");
    note.hidden = true;
    const [start, stop] = span;
    const body = { label: word, recording: item.recording, start_sample: start, stop_sample: stop, known: state.last_label, new: fresh, why };
    const key = outbox.send(body, item);
    said += 1;
    given.push({ item, key, body });
    spoken.push(body);
    queue = queue.filter((other) => !samePassage(other, { ...item, start_sample: start, stop_sample: stop }));
    count(1);
    next();
  }

  function skipIt() {
    if (!queue.length) return;
    note.hidden = true;
    skipped.add(nameOf(queue.shift()));
    next();
  }

  function next() {
    present();
    showCounters();
    if (queue.length < FEW) look();
  }

  function takeBack() {
    const last = given.pop();
    if (!last) return;
    said += 1;
    count(-1, outbox.takeBack(last.key) ? 1 : -1);
    returnTo(last.item);
    tellNote(`Taken back: ${words(last.body.label)}.`);
  }

  function returnTo(item) {
    queue = [item, ...queue.filter((other) => !samePassage(other, item))];
    present();
    showCounters();
  }

  function extend(earlier, later) {
    const item = queue[0];
    if (!item) return;
    span = [Math.max(item.shown_start_sample, span[0] + earlier * item.rate_hz), Math.min(item.shown_stop_sample, span[1] + later * item.rate_hz)];
    view.mark(...span);
    showCovers();
  }

  function showCovers() {
    covers.textContent = `label covers ${((span[1] - span[0]) / queue[0].rate_hz).toFixed(1)} s`;
  }

  function alone(n) {
    sound.alone(n);
    view.solo(sound.solo);
    if (!sound.playing) sound.play();
  }

  const ACTIONS = {
    s: skipIt, u: takeBack, a: toggleAutoplay, h: toggleSpeed, n: () => own.begin(), " ": () => sound.toggle(),
    ArrowLeft: () => sound.seek(sound.position - 1), ArrowRight: () => sound.seek(sound.position + 1),
    "[": () => extend(-1, 0), "]": () => extend(0, 1), "?": () => keys.showModal(),
    0: () => { if (queue[0]) { span = [queue[0].start_sample, queue[0].stop_sample]; view.mark(...span); showCovers(); } },
  };

  function pressed(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, select, textarea") || (event.key === " " && event.target.closest("button, a, summary"))) return;
    const word = /^[1-9]$/.test(event.key) ? state?.words[event.key - 1]?.word : null;
    const sensor = SOLO_KEYS.indexOf(event.code);
    const action = word ? () => label(word) : ACTIONS[event.key.length === 1 ? event.key.toLowerCase() : event.key] ?? (sensor >= 0 && view && sensor < view.n ? () => alone(sensor) : null);
    if (!action) return;
    event.preventDefault();
    action();
  }

  function answered({ sent, answer, refused, error, delayed }) {
    if (!state) return;
    if (sent && answer.number) state.last_label = Math.max(state.last_label, answer.number);
    if (sent && answer.meanwhile?.length) {
      const [other] = answer.meanwhile;
      tellNote(`${other.who} had labelled it ${words(other.label ?? "nothing")} meanwhile; yours, ${words(sent.body.label)}, counts as the last word. Undo takes it back.`);
    }
    if (refused) {
      const last = given.findIndex((one) => one.key === refused.key);
      if (last >= 0) given.splice(last, 1);
      if (refused.item) {
        count(-1);
        returnTo(refused.item);
      }
      tellNote("The server did not take it: ", error.message);
    }
    if (delayed) tellNote(`${delayed.message} Your labels are kept here and sent as soon as it answers; go on.`);
    else if (sent && !outbox.waiting().length && note.textContent.includes("kept here")) note.hidden = true;
    showCounters();
  }

  /** Others label, too: what they have answered is no longer asked, but nothing moves under anybody's hands. */
  function happened(events) {
    if (!state) return;
    for (const event of events.filter((one) => one.type === "label_given" && one.label !== null)) {
      const mine = spoken.some((body) => body.recording === event.recording && body.start_sample === event.start_sample && body.label === event.label);
      if (mine) continue;
      const before = queue.length;
      const [now, ...rest] = queue;
      queue = [now, ...rest.filter((item) => !samePassage(item, event))].filter(Boolean);
      state.waiting = Math.max(0, state.waiting - (before - queue.length));
      showCounters();
      if (now && samePassage(now, event)) tellNote(`${event.who} has just labelled it ${words(event.label)}, by ${event.via}. Your label would count as the last word; S skips it.`);
    }
    if (queue.length < FEW && Date.now() - lookedAt > LOOK_MS && events.some((one) => one.type === "decision")) look();
  }

  const leave = [live.on("events", happened), outbox.on(answered)];
  document.addEventListener("keydown", pressed);
  showChoices();
  showPlaying(false);
  await look({ event: wantedEvent });
  return () => {
    closed = true;
    leave.forEach((stop) => stop());
    document.removeEventListener("keydown", pressed);
    clearTimeout(deaf);
    sound.close();
  };
}

function keysDialog() {
  const dialog = el("dialog.review-keys", { "aria-labelledby": "review-keys" },
    el("h2", { id: "review-keys" }, "Keys"),
    el("dl.facts", {}, KEYS.map(([key, does]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, does)])),
    el("form.row", { method: "dialog" }, el("button.primary", {}, "Close")));
  return dialog;
}

function ownWordDialog(say) {
  const word = el("input", { name: "word", required: true, pattern: ".*\\S.*", title: "a word, not only spaces", maxLength: 100, autocomplete: "off" });
  const why = el("input", { name: "why", maxLength: 500, autocomplete: "off" });
  const dialog = el("dialog", { "aria-labelledby": "review-own" },
    el("h2", { id: "review-own" }, "What do you hear?"),
    el("form.stack", { method: "dialog", onsubmit: () => say(word.value.trim(), why.value.trim()) },
      el("p.quiet", {}, "A word that no model knows yet is kept with its sound; models learn their classes only (training.classes)."),
      el("label.field", {}, "Word", word), el("label.field", {}, "Why you think so", why),
      el("div.row", {}, el("button.primary", {}, "Label it"), el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
  return Object.assign(dialog, { begin() { word.value = why.value = ""; dialog.showModal(); word.focus(); } });
}
