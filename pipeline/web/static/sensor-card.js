// A sensor on Now: its health, level and live spectrogram; weight and p-value explained on demand.

import { clock, el, replace, settle, words } from "./dom.js";
import { scrolling } from "./sounds.js";
import { badge, ROLES } from "./states.js";

const QUIETEST_DBFS = -90;
const OLD_MS = 4000;
const HEALTH = {
  good: "no fault was found.", degraded: "a fault was found that halves its weight.", bad: "a fault was found; it is not used until it has recovered.",
  off: "switched off in the settings (array.mask); it is measured all the same.", unknown: "not enough sound yet to say.",
};

const decibels = (dbfs) => (dbfs === null ? "digital silence" : `${dbfs.toFixed(1).replace("-", "−")} dBFS`);

/** A card for one sensor; `causes` are the answer of /causes. */
export function sensorCard(number, rateHz, causes) {
  const state = el("span");
  const level = el("span.bar", { "aria-hidden": "true" }, el("span"));
  const measured = el("span.number");
  const role = el("p.say", { hidden: true });
  const found = el("div.found");
  const explained = el("dl");
  const details = el("details.explained", { ontoggle: () => explain() },
    el("summary", { "aria-label": `Weight, p-value and health of sensor ${number}` }, "Weight, p-value, health"), explained);
  const view = scrolling({ rateHz, name: `sensor ${number}` });
  const missing = el("p.missing.over", {}, "Waiting for sound …");
  view.box.append(missing);
  let shown = "";
  let status = null;
  let heardAt = Date.now();

  function measure(dbfs) {
    level.firstChild.style.width = dbfs === null ? "0" : `${Math.max(0, Math.min(100, 100 * (1 - dbfs / QUIETEST_DBFS)))}%`;
    measured.textContent = decibels(dbfs);
  }

  function rest(text) {
    missing.hidden = false;
    missing.textContent = text;
    measured.textContent = "–";
    level.firstChild.style.width = "0";
  }

  function explain() {
    if (!details.open || !status) return;
    const fresh = el("dl");
    fresh.append(...explanation(status.one, status.alpha));
    settle(explained, fresh);
  }

  return {
    card: el("article.card.sensor", { "aria-label": `Sensor ${number}` },
      el("div.row.apart", {}, el("h3", {}, el("a", { href: `/sensors/${number}` }, `Sensor ${number}`)), state),
      el("div.level", {}, el("span.quiet", {}, "Level"), level, measured), view.box, found, role, details),
    stands(one, alpha) {
      status = { one, alpha };
      explain();
      role.hidden = !one.delivers || one.role === null || one.role === "used";
      role.textContent = role.hidden ? "" : `In the latest decision ${ROLES[one.role]}.`;
      if (!one.delivers) rest(one.last_frame ? `No sound since ${clock(1000 * one.last_frame)}` : "No sound yet");
      // Only changes are written, so that a selection of text stays.
      if (shown === (shown = JSON.stringify([one.state, one.causes]))) return;
      replace(state, badge(one.state));
      replace(found, one.causes.length > 0 && el("ul.plain", {}, one.causes.map((cause, n) =>
        el("li", {}, el("strong", {}, words(cause)), `: ${causes[cause]?.meaning ?? ""}. `, el("span.quiet", {}, one.cures[n])))));
    },
    /** Show the kept sound; null if none is kept. */
    fill(columns, told) {
      view.fill(columns, told);
      if (columns && status?.one.delivers) missing.hidden = true;
    },
    heard(columns, told, n) {
      view.add(columns, told);
      if (!told.delivered[n]) return;
      heardAt = Date.now();
      missing.hidden = true;
      measure(told.levels_dbfs[n]);
    },
    wait() {
      // While the connection is lost, the banner says so.
      if (!status?.one.delivers || Date.now() - heardAt < OLD_MS || document.body.dataset.connection !== "live") return;
      rest("No sound is kept to show (storage.sound).");
    },
    pause: view.pause,
    close: view.close,
  };
}

/** Weight, p-value and health of a sensor in words. */
function explanation(one, alpha) {
  return [
    el("dt", {}, "What is a weight?"),
    el("dd", {}, "The share of a sensor in each decision: 1 counts fully, 0 not at all. ", el("strong", {}, weightWords(one))),
    el("dt", {}, "What is a p-value?"),
    el("dd", {}, `How usual the latest segment is for this sensor, compared with its reference set. A sensor with ${alpha} (alpha) or less is excluded. `, el("strong", {}, pWords(one.p_value, alpha))),
    el("dt", {}, "What is health?"),
    el("dd", {}, "What physical checks say of a sensor, such as cable, supply and gain. ", el("strong", {}, `${one.state}: ${HEALTH[one.state] ?? ""}`)),
  ];
}

function weightWords(one) {
  if (!one.delivers) return "It delivers nothing and has no weight.";
  if (one.weight === null) return "There is no decision yet.";
  return `${one.weight.toFixed(2)}: ${one.role === "used" ? (one.weight >= 0.995 ? "it counts fully." : one.weight >= 0.5 ? "it counts for less." : "it hardly counts.") : `${ROLES[one.role]}.`}`;
}

function pWords(p, alpha) {
  if (p === null) return "There is none for the latest segment.";
  const rare = p < 0.001 ? "fewer than 1 of 1000" : p < 0.1 ? `${Math.max(1, Math.round(1000 * p))} of 1000` : `${Math.round(100 * p)} of 100`;
  const written = p < 0.001 ? "below 0.001" : p.toFixed(3);
  return `${written}: ${rare} segments of a working sensor are at least as unusual${p <= alpha ? "; it is excluded." : "."}`;
}
