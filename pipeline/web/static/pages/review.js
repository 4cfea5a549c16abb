// A queue of passages to label, the most instructive first: listen, press a key, go on with the next.

import { get } from "../api.js";
import { colorOf } from "../class-colors.js";
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
const APART_SECONDS = 30; // closer moments outside of passages are about the same sound: one label is enough
const LEAD_IN_SECONDS = 1.5;
const TOO_SOON_MS = 500; // nobody can have listened by then: a key that is pressed twice is a slip
const KEYS = [
  ["1 … 9", "a class of the model"], ["0", "nobody: wind, an animal, a machine"], ["X", "unknown: somebody or something, but no class fits"], ["D", "not sure"],
  ["N", "label it in your own words"], ["S", "skip it for now"], ["U", "undo: take back the last label and return to it"],
  ["Space", "play or pause"], ["← →", "a second back or on"], [[...SOLO_KEYS].map((code) => code.slice(3)).join(" "), "hear the first, second … sensor alone, and all again"],
  ["[ ]", "outside of passages: begin the label a second earlier, end it a second later"], ["M", "label only the marked part again"],
  ["A", "play automatically or not"], ["H", "half speed or full"], ["?", "these keys"],
];

const idOf = (item) => item.passage ?? `${item.recording}@${item.start_sample}`;

/** Whether a label of one answers the question about the other. A passage ends where it ends; moments have a margin. */
function isAnswered(item, other) {
  if (item.passage && other.passage) return item.passage === other.passage;
  const apart = item.passage || other.passage ? 0 : APART_SECONDS * item.rate_hz;
  return item.recording === other.recording &&
    Math.max(item.start_sample - other.stop_sample, other.start_sample - item.stop_sample) < apart;
}

/** The item with the stretch that a label covers, which may be longer than the moment that was asked about. */
const labeled = ({ item, body }) => (body.passage ? item : { ...item, start_sample: body.start_sample, stop_sample: body.stop_sample });

function remembered() {
  try {
    return { autoplay: true, speed: 1, ...JSON.parse(localStorage.getItem(CHOICES)) };
  } catch {
    return { autoplay: true, speed: 1 };
  }
}

export async function show(root) {
  const query = new URLSearchParams(location.search);
  const wanted = { event: Number(query.get("event")) || null, passage: query.get("passage") };
  const chosen = remembered();
  const skipped = new Set();
  const given = []; // in this visit: { item, key, body }, to be undone
  const sent = []; // the same, undone or not: events about them are no news
  let queue = [];
  let state = null; // the last answer of the server
  let view = null;
  let span = null; // what a label would cover, in samples
  let changes = 0; // labels given and taken back: an answer that was requested before does not include them
  let waiting = null; // timer until somebody can have listened
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
  const extenders = [
    el("button", { type: "button", title: "Begin the label a second earlier ([)", "aria-label": "Begin the label a second earlier", onclick: () => extend(-1, 0) }, "◂ 1 s"),
    el("button", { type: "button", title: "End the label a second later (])", "aria-label": "End the label a second later", onclick: () => extend(0, 1) }, "1 s ▸"),
  ];
  const options = el("div.row.review-options", {}, autoplay, speed, extenders, covers,
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
    const unsent = outbox.waiting().filter((entry) => entry.item).map(labeled);
    return !skipped.has(idOf(item)) && ![...queue, ...unsent].some((other) => isAnswered(item, other));
  }

  async function look(first = {}) {
    if (looking) return;
    looking = true;
    lookedAt = Date.now();
    try {
      const most = Math.min(100, AT_ONCE + queue.length + skipped.size);
      const changesBefore = outbox.waiting().length ? NaN : changes;
      const found = await get("/review", { most, ...first });
      if (closed) return;
      const knows = changesBefore === changes;
      const counts = knows || !state ? found : state;
      state = { ...found, labels_today: counts.labels_today, retraining: counts.retraining, waiting: counts.waiting };
      showLabels();
      const before = queue.length;
      const done = knows ? [] : given.map(labeled);
      for (const item of found.items) {
        if (item.asked === "wanted" || (isNew(item) && !done.some((other) => isAnswered(item, other)))) queue.push(item);
      }
      if (!before) present();
      else prefetch();
      showCounters();
    } catch (error) {
      if (closed) return;
      if ((first.event || first.passage) && error.code === 404) {
        showNote(error.message);
        looking = false;
        return look();
      }
      if (!queue.length) replace(stage, failed(error, () => look(first)));
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
    stage.dataset.item = item ? idOf(item) : "";
    stage.dataset.sound = "";
    if (!item) {
      view = null;
      return presentNothing();
    }
    span = [item.start_sample, item.stop_sample];
    bar.dataset.heard = "";
    clearTimeout(waiting);
    waiting = setTimeout(() => { bar.dataset.heard = "yes"; }, TOO_SOON_MS);
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
      const again = el("button.primary", { type: "button", onclick: () => { skipped.clear(); replace(stage, loading("what you skipped")); look(); } }, "Review them again");
      return replace(stage, empty(`Only what you skipped is left: ${skipped.size}`, again));
    }
    if (!state) return;
    const { title, cure } = state.empty ?? { title: "Everything is labeled", cure: "New passages appear here by themselves." };
    replace(stage, empty(`Nothing to review: ${title.charAt(0).toLowerCase()}${title.slice(1)}`, cure));
  }

  const classes = () => (state?.words ?? []).filter((one) => one.kind === "class").map((one) => one.word);
  const choices = () => (state?.words ?? []).filter((one) => one.key !== null);
  const shownName = (label) => state?.words.find((one) => one.word === label)?.name ?? words(label);

  function showLabels() {
    const made = choices().map((one) =>
      el("button.review-label", { type: "button", title: one.learned ? null : "Not learned by the next model; its sound is kept", data: { label: one.word, kind: one.kind }, onclick: (event) => { relax(event); label(one.word); } },
        el("kbd", {}, one.key.toUpperCase()), one.name));
    if (made.length === labels.children.length && made.every((one, n) => one.dataset.label === labels.children[n].dataset.label)) return;
    for (const one of made) one.style.borderBottomColor = `var(${colorOf(one.dataset.label, classes())})`;
    replace(labels, made);
  }

  function showCounters() {
    if (!state) return;
    const unsent = outbox.waiting().length;
    const { enabled, new_labels: fresh, wanted } = state.retraining;
    const more = Math.max(0, wanted - fresh);
    const learning = !enabled ? "retraining is switched off" : more ? `${more} more until the next retraining` : "enough for the next retraining";
    const left = Math.max(queue.length, state.waiting);
    const bar = el("span.bar", { "aria-hidden": "true" }, el("span"));
    bar.firstChild.style.width = `${100 * Math.min(1, fresh / wanted)}%`;
    replace(counters,
      el("span", { data: { count: "today" } }, `${state.labels_today} labeled today`), " · ", enabled && bar, learning, " · ",
      el("span", { data: { count: "waiting" } }, `${left} to review`),
      unsent ? el("strong.degraded", { data: { count: "unsent" } }, ` · ${unsent} kept here, to be sent`) : null);
  }

  /** Count labels; training also counts those that were taken back as new. */
  function count(given, fresh = given) {
    state.labels_today = Math.max(0, state.labels_today + given);
    state.retraining.new_labels += fresh;
    state.waiting = Math.max(0, state.waiting - given);
  }

  function showNote(...text) {
    replace(note, ...text);
    note.hidden = false;
  }

  /** Keys belong to the page again after a click. */
  function relax(event) {
    if (event.detail) event.currentTarget.blur();
  }

  function label(word, { isNew: fresh = false, why = "" } = {}) {
    const item = queue[0];
    if (!item || !bar.dataset.heard) return;
    if (!mayOperate()) return showNote("You are logged in as a viewer; labelling needs the role operator.");
    note.hidden = true;
    const [start, stop] = span;
    const place = item.passage ? { passage: item.passage } : { recording: item.recording, start_sample: start, stop_sample: stop };
    const body = { label: word, ...place, known: state.last_label, new: fresh, why };
    const key = outbox.send(body, item);
    changes += 1;
    given.push({ item, key, body });
    sent.push({ item, body });
    queue = queue.filter((other) => !isAnswered(other, labeled({ item, body })));
    count(1);
    next();
  }

  function skipIt() {
    if (!queue.length) return;
    note.hidden = true;
    skipped.add(idOf(queue.shift()));
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
    changes += 1;
    count(-1, outbox.takeBack(last.key) ? 1 : -1);
    returnTo(last.item);
    showNote(`Taken back: ${shownName(last.body.label)}.`);
  }

  function returnTo(item) {
    queue = [item, ...queue.filter((other) => !isAnswered(other, item))];
    present();
    showCounters();
  }

  function extend(earlier, later) {
    const item = queue[0];
    if (!item || item.passage) return;
    span = [Math.max(item.shown_start_sample, span[0] + earlier * item.rate_hz), Math.min(item.shown_stop_sample, span[1] + later * item.rate_hz)];
    view.mark(...span);
    showCovers();
  }

  function showCovers() {
    const seconds = ((span[1] - span[0]) / queue[0].rate_hz).toFixed(1);
    const { passage } = queue[0];
    covers.textContent = passage ? `the label covers the whole passage, ${seconds} s` : `the label covers ${seconds} s`;
    for (const button of extenders) button.hidden = Boolean(passage);
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
    m: () => { if (queue[0]) { span = [queue[0].start_sample, queue[0].stop_sample]; view.mark(...span); showCovers(); } },
  };

  function pressed(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, select, textarea") || (event.key === " " && event.target.closest("button, a, summary"))) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const word = choices().find((one) => one.key === key)?.word;
    const sensor = SOLO_KEYS.indexOf(event.code);
    const action = word ? () => label(word) : ACTIONS[key] ?? (sensor >= 0 && view && sensor < view.n ? () => alone(sensor) : null);
    if (!action) return;
    event.preventDefault();
    action();
  }

  function answered({ sent: entry, answer, refused, error, delayed }) {
    if (!state) return;
    if (entry && answer.number) state.last_label = Math.max(state.last_label, answer.number);
    if (entry && answer.meanwhile?.length) {
      const [other] = answer.meanwhile;
      showNote(`${other.who} labeled it ${other.label === null ? "nothing" : shownName(other.label)} meanwhile; your label, ${shownName(entry.body.label)}, counts because it is the last. Undo takes it back.`);
    }
    if (refused) {
      const last = given.findIndex((one) => one.key === refused.key);
      if (last >= 0) given.splice(last, 1);
      if (refused.item) {
        count(-1);
        returnTo(refused.item);
      }
      showNote("The server refused the label: ", error.message);
    }
    if (delayed) showNote(`${delayed.message} Your labels are kept here and sent as soon as it answers; go on.`);
    else if (entry && !outbox.waiting().length && note.textContent.includes("kept here")) note.hidden = true;
    showCounters();
  }

  /** Others label, too: what they have answered is no longer asked, but the item on the page stays. */
  function happened(events) {
    if (!state) return;
    for (const event of events.filter((one) => one.type === "label_given" && one.label !== null)) {
      const mine = sent.some((entry) => entry.body.label === event.label && isAnswered(labeled(entry), event));
      if (mine) continue;
      const before = queue.length;
      const [now, ...rest] = queue;
      queue = [now, ...rest.filter((item) => !isAnswered(item, event))].filter(Boolean);
      state.waiting = Math.max(0, state.waiting - (before - queue.length));
      showCounters();
      if (now && isAnswered(now, event)) showNote(`${event.who} has just labeled it ${shownName(event.label)}, by ${event.via}. A label of yours would replace it; S skips it.`);
    }
    if (queue.length < FEW && Date.now() - lookedAt > LOOK_MS && events.some((one) => one.type === "decision")) look();
  }

  const leave = [live.on("events", happened), outbox.on(answered)];
  document.addEventListener("keydown", pressed);
  showChoices();
  showPlaying(false);
  await look(wanted);
  return () => {
    closed = true;
    leave.forEach((stop) => stop());
    document.removeEventListener("keydown", pressed);
    clearTimeout(waiting);
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
    el("h2", { id: "review-own" }, "Your own word"),
    el("form.stack", { method: "dialog", onsubmit: () => say(word.value.trim(), why.value.trim()) },
      el("p.quiet", {}, "The sound is kept with this word. A model learns only its classes (training.classes)."),
      el("label.field", {}, "Word", word), el("label.field", {}, "Reason", why),
      el("div.row", {}, el("button.primary", {}, "Label it"), el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"))));
  return Object.assign(dialog, { begin() { word.value = why.value = ""; dialog.showModal(); word.focus(); } });
}
