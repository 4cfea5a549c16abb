// What the array hears and thinks at this moment.

import { get } from "../api.js";
import { headline, strip, turned, votes } from "../decision.js";
import { el, empty, long, replace, settle, words } from "../dom.js";
import * as live from "../live.js";
import * as news from "../news.js";
import { columnsOf, scrolling } from "../sounds.js";
import { badge, ROLES } from "../states.js";

export const spectrogram = true;
const MOST_DECISIONS = 250;
const MOST_NEWS = 10;
const QUIETEST_DBFS = -90;
const OLD_MS = 4000;

export async function show(root) {
  const [status, decisions, told, { causes }] = await Promise.all([
    get("/status"),
    get("/events", { types: "decision", newest_first: true, most: MOST_DECISIONS }),
    get("/events", { types: news.TYPES, newest_first: true, most: 4 * MOST_NEWS }),
    get("/causes"),
  ]);
  const page = layout(causes);
  replace(root, page.head, page.body);
  page.decided(decisions.events.reverse());
  if (status.status) page.stands(status.status);
  page.happened(told.events.reverse());
  const stops = [
    live.on("status", page.stands),
    live.on("columns", page.heard),
    live.follow(decisions.last_id, (events) => page.decided(events.filter((event) => event.type === "decision"))),
    live.follow(told.last_id, page.happened),
    page.close,
  ];
  return () => stops.forEach((stop) => stop());
}

function layout(causes) {
  const decision = el("section.card.decision.live", { "aria-label": "Decision" });
  const list = el("ul.news.plain");
  const cards = el("div.sensors");
  const pause = el("button", { type: "button", "aria-pressed": "false", onclick: () => rest() }, "Pause pictures");
  const recent = [];
  let sensors = [];
  let last = null;
  let paused = false;

  function rest() {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause pictures";
    sensors.forEach((sensor) => sensor.pause(paused));
  }

  function stands(status) {
    last = status;
    if (sensors.length !== status.sensors.length) {
      sensors.forEach((sensor) => sensor.close());
      sensors = status.sensors.map((one) => sensorCard(one.sensor, status.rate_hz, causes));
      replace(cards, sensors.map((sensor) => sensor.card));
    }
    status.sensors.forEach((one, n) => sensors[n].stands(one));
    if (recent.at(-1)?.run === status.run) sensors.forEach((sensor, n) => sensor.decided(recent.at(-1), n));
    showDecision();
  }

  function decided(events) {
    if (!events.length) return;
    recent.push(...events);
    recent.splice(0, recent.length - MOST_DECISIONS);
    sensors.forEach((sensor, n) => sensor.decided(recent.at(-1), n));
    showDecision();
  }

  function showDecision() {
    const fresh = decision.cloneNode();
    fresh.append(...standing());
    settle(decision, fresh);
  }

  function standing() {
    const newest = recent.at(-1);
    if (!last) return [empty("The daemon has told nothing yet", "It is starting, or it is not running: gemmed run starts it.")];
    // A decision of another life of the daemon says nothing of now.
    if (!newest || newest.run !== last.run) return [undecided(last)];
    const now = Date.parse(last.time);
    const age = now - Date.parse(newest.time);
    const old = `This is ${long(age / 1000)} old: since then nothing was decided, because ${silence(last)}.`;
    return [
      el("div.now-decision", {},
        el("div", {}, headline(newest), age > OLD_MS && el("p.note.degraded", {}, old)),
        el("div", {}, votes(newest), el("p.turned", {}, turned(newest)))),
      strip(recent.filter((one) => one.run === last.run), Math.max(now, Date.parse(newest.time))),
    ];
  }

  function happened(events) {
    for (const event of events) {
      const words = news.told(event, last?.rate_hz ?? 1);
      if (words) list.prepend(news.line(event, words));
    }
    while (list.children.length > MOST_NEWS) list.lastChild.remove();
    if (!list.children.length) replace(list, el("li.quiet", {}, "Nothing so far: no sensor has changed its state, nothing unusual was heard."));
    else list.querySelector(".quiet")?.remove();
  }

  function heard(told) {
    if (!last) return;
    columnsOf(told, sensors.length).forEach((columns, n) => sensors[n].heard(columns, told, n));
  }

  const timer = setInterval(() => sensors.forEach((sensor) => sensor.wait()), 1000);
  return {
    head: el("div.head", {}, el("h1", {}, "Now"), pause),
    body: el("div.now", {}, decision,
      el("section.live", { "aria-label": "Sensors" }, el("h2.unseen", {}, "Sensors"), cards),
      el("section.card", { "aria-label": "News" }, el("h2", {}, "News"), list)),
    stands, decided, happened, heard,
    close: () => { clearInterval(timer); sensors.forEach((sensor) => sensor.close()); },
  };
}

const silence = (status) => (status.recording === null ? "nothing is recorded" : "no sound arrives, or no sensor delivered a whole segment");

/** Before the first decision: what is being done about it. */
function undecided(status) {
  if (status.model) return empty("No decision yet", `Model ${status.model} decides as soon as two seconds of sound were heard.`);
  const far = status.learning === "in progress"
    ? "A first model is being made now; that takes a minute or two."
    : status.learning ?? "A first model is made as soon as there is enough to learn from: see [training] in the settings.";
  return empty("No model decides yet", `${far} Until then the states of the sensors are told, from physics alone.`);
}

function sensorCard(number, rateHz, causes) {
  const state = el("span");
  const level = el("span.bar", { "aria-hidden": "true" }, el("span"));
  const decibels = el("span.number");
  const say = el("p.say");
  const found = el("div.found");
  const view = scrolling({ rateHz, name: `sensor ${number}` });
  const missing = el("p.missing.over", {}, "Waiting for sound …");
  view.box.append(missing);
  let shown = "";
  let heardAt = Date.now();

  function measure(dbfs, delivers) {
    level.firstChild.style.width = dbfs === null ? "0" : `${Math.max(0, Math.min(100, 100 * (1 - dbfs / QUIETEST_DBFS)))}%`;
    decibels.textContent = !delivers ? "delivers nothing" : dbfs === null ? "digital silence" : `${dbfs.toFixed(1).replace("-", "−")} dBFS`;
  }

  return {
    card: el("article.card.sensor", { "aria-label": `Sensor ${number}` },
      el("div.row.apart", {}, el("h3", {}, el("a", { href: `/sensors/${number}` }, `Sensor ${number}`)), state),
      el("div.level", {}, el("span.quiet", {}, "Level"), level, decibels), view.box, say, found),
    stands(one) {
      // Only what has changed is written: somebody may be reading it, or marking it.
      if (shown === (shown = JSON.stringify([one.state, one.causes]))) return;
      replace(state, badge(one.state));
      replace(found, one.causes.length
        ? el("ul.plain", {}, one.causes.map((cause, n) => el("li", {}, el("strong", {}, words(cause)), `: ${causes[cause]?.meaning ?? ""}. `, el("span.quiet", {}, one.cures[n]))))
        : el("p.quiet", {}, one.state === "unknown" ? "Not heard for long enough to tell." : one.state === "off" ? "Switched off in the settings (array.mask)." : "Nothing is the matter."));
    },
    decided(decision, n) {
      const p = decision.p_values[n];
      replace(say, el("span", {}, ROLES[decision.roles[n]]), el("span.number.quiet", {}, `weight ${decision.weights[n].toFixed(2)}${p === null ? "" : ` · p ${p < 0.001 ? "< 0.001" : p.toFixed(3)}`}`));
    },
    heard(columns, told, n) {
      heardAt = Date.now();
      missing.hidden = true;
      view.add(columns, told.start_sample, told.hop);
      measure(told.levels_dbfs[n], told.delivered[n]);
    },
    wait() {
      // Of a lost connection the banner tells; that says nothing of the sound.
      if (Date.now() - heardAt < OLD_MS || document.body.dataset.connection !== "live") return;
      missing.hidden = false;
      missing.textContent = "No sound to show: none arrives, or none is kept (storage.sound).";
      decibels.textContent = "–";
      level.firstChild.style.width = "0";
    },
    pause: view.pause,
    close: view.close,
  };
}
