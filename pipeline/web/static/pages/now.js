// Whether somebody is there at this moment, the last passages, and the sensors.

import { get } from "../api.js";
import { strip } from "../decision.js";
import { el, replace, settle } from "../dom.js";
import * as live from "../live.js";
import { passageList } from "../passage-list.js";
import { headline, standing } from "../presence.js";
import { sensorCard } from "../sensor-card.js";
import { columnsOf } from "../sounds.js";

export const spectrogram = true;
const MOST_DECISIONS = 250;
const MOST_PASSAGES = 10;

export async function show(root) {
  const [status, decisions, { causes }] = await Promise.all([
    get("/status"),
    get("/events", { types: "decision", newest_first: true, most: MOST_DECISIONS }),
    get("/causes"),
  ]);
  const page = layout(causes);
  // Before the kept sound is asked for: nothing of the stream may be missed between.
  const deaf = live.on("columns", page.heard);
  replace(root, page.head, page.body);
  page.decided(decisions.events.reverse());
  page.stands(status.status && { ...status.status, running: status.running });
  const stops = [
    deaf,
    live.on("status", page.stands),
    live.follow(decisions.last_id, (events) => page.decided(events.filter((event) => event.type === "decision"))),
    page.close,
  ];
  page.load();
  return () => stops.forEach((stop) => stop());
}

function layout(causes) {
  const presence = el("section.card.presence.live", { "aria-label": "Presence" });
  const spoken = el("p.unseen", { role: "status" });
  const cards = el("div.sensors");
  const pause = el("button", { type: "button", "aria-pressed": "false", onclick: () => rest() }, "Pause pictures");
  const recent = [];
  let sensors = [];
  let last = null;
  let paused = false;
  const passages = passageList({ most: MOST_PASSAGES, status: () => last });

  function rest() {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause pictures";
    sensors.forEach((sensor) => sensor.pause(paused));
  }

  function stands(status) {
    last = status;
    if (status && sensors.length !== status.sensors.length) {
      sensors.forEach((sensor) => sensor.close());
      sensors = status.sensors.map((one) => sensorCard(one.sensor, status.rate_hz, causes));
      replace(cards, sensors.map((sensor) => sensor.card));
      fill();
    }
    status?.sensors.forEach((one, n) => sensors[n].stands(one, status.alpha));
    showPresence();
  }

  function decided(events) {
    if (!events.length) return;
    recent.push(...events);
    recent.splice(0, recent.length - MOST_DECISIONS);
    showPresence();
  }

  function showPresence() {
    const own = recent.filter((one) => one.run === last?.run);
    const fresh = presence.cloneNode();
    fresh.append(headline(last, own.at(-1)));
    if (own.length && last.running !== false) fresh.append(strip(own, Math.max(Date.parse(last.time), Date.parse(own.at(-1).time)), last.names));
    settle(presence, fresh);
    // Read aloud when it changes, not every second.
    const { title } = standing(last, own.at(-1));
    if (spoken.textContent !== title) spoken.textContent = title;
  }

  function heard(told) {
    columnsOf(told, sensors.length).forEach((columns, n) => sensors[n].heard(columns, told, n));
  }

  /** Draw the kept sound of the last seconds; without any, the pictures start empty. */
  async function fill() {
    const kept = await get("/spectrogram").catch(() => null);
    const columns = kept && columnsOf(kept, kept.sensors.length);
    sensors.forEach((sensor, n) => sensor.fill(columns?.[n] ?? null, kept));
  }

  const timer = setInterval(() => sensors.forEach((sensor) => sensor.wait()), 1000);
  return {
    head: el("div.head", {}, el("h1", {}, "Now"), pause),
    body: el("div.now", {}, presence, spoken,
      el("section.card.last-passages", { "aria-label": "Last passages" },
        el("h2", {}, "Last passages"), passages.list,
        el("p.more", {}, el("a", { href: "/history" }, "All passages"), " · ", el("a", { href: "/activity" }, "Faults and other activity"))),
      el("section.live", { "aria-label": "Sensors" }, el("h2.unseen", {}, "Sensors"), cards)),
    stands, decided, heard, load: passages.load,
    close: () => { clearInterval(timer); passages.close(); sensors.forEach((sensor) => sensor.close()); },
  };
}
