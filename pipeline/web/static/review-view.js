// How one item of the review looks: why it is asked, what each sensor contributed, and its sound.

import { el, probabilityText, replace, time, words } from "./dom.js";
import { picture } from "./sounds.js";
import { ROLES } from "./states.js";

const SHORT = {
  absent: "did not deliver", off: "switched off", masked: "bad health, not counted", calibrating: "no reference yet",
  untrained: "not trained, not counted", anomalous: "unusual, not counted",
};
const ASKED = {
  doubt: ["Doubted label", "the label and the sensors disagree"],
  instructive: ["Instructive", "a label helps the next model most here"],
  chance: ["Spot check", "drawn at random"],
  wanted: ["Chosen", "you asked for it"],
};
const SOLO = "QWERTY";
export const SOLO_KEYS = [...SOLO].map((key) => `Key${key}`);

const shownSeconds = (item) => (item.shown_stop_sample - item.shown_start_sample) / item.rate_hz;
export const secondsInto = (item, sample) => (sample - item.shown_start_sample) / item.rate_hz;
const place = (item, sample) => `${(100 * secondsInto(item, sample)) / shownSeconds(item)}%`;

/** Why it is asked, in words. */
export function reasons(item) {
  const [title, meaning] = ASKED[item.asked];
  const at = item.decision && time(item.decision.time);
  const kind = item.passage ? el("a", { href: `/history?passage=${encodeURIComponent(item.passage)}` }, "passage") : "a moment outside of passages";
  return el("div.review-why", {},
    el("p.row", {}, el("span.tag", { data: { asked: item.asked } }, title), el("span.quiet.meaning", {}, meaning), el("span.quiet", {}, kind), at && el("span.quiet", {}, at)),
    el("ul", {}, item.why.map((one) => el("li", {}, words(one)))),
    item.labelled && item.asked !== "doubt" && el("p.note", {}, `${item.labelled.who} labeled it ${item.labelled.label} at `, time(item.labelled.time)));
}

/** The decision in its middle. */
export function decided(item) {
  const decision = item.decision;
  if (!decision) return el("p.quiet", {}, "There is no decision about it.");
  const sure = decision.probability === null ? "" : `, ${probabilityText(decision.probability)}`;
  return el("details.review-more", {},
    el("summary", {}, "Decision ", el("span.number", {}, decision.event), ": ", el("strong", {}, decision.label ? words(decision.label) : "undecided"), sure, decision.reason ? ` (${decision.reason})` : ""),
    el("dl.facts", {},
      el("dt", {}, "Model"), el("dd", {}, el("a", { href: "/models" }, decision.model)),
      item.teaches && [el("dt", {}, "Teaches"), el("dd.number", {}, `${item.teaches.value.toFixed(2)} of 1 = uncertainty ${item.teaches.uncertainty.toFixed(2)} × (1 + disagreement ${item.teaches.disagreement.toFixed(2)}) × (1 + anomaly ${item.teaches.anomaly.toFixed(2)}) / 4`)],
      item.near.length ? [el("dt", {}, "Near it"), el("dd", {}, el("ul.plain", {}, item.near.map((one) => el("li", {}, `${distance(item, one.sample)}: ${words(one.told)}`))))] : null));
}

function distance(item, sample) {
  const seconds = (sample - item.start_sample) / item.rate_hz;
  return seconds < 0 ? `${(-seconds).toFixed(1)} s before` : `${seconds.toFixed(1)} s after its beginning`;
}

/** Rows of sensors with their pictures on one axis of time; `sought(seconds)` where somebody points, `alone(n)` for one. */
export function sounds(item, { sought, alone, classes }) {
  const box = el("div.review-sounds", {}, el("p.loading", { role: "status" }, "Loading the sound …"));
  const heads = [];
  const marks = [];
  const buttons = [];

  function row(sensor, spectrogram) {
    const said = item.decision?.sensors[sensor - 1];
    const button = el("button.solo", { type: "button", "aria-pressed": "false", title: `Hear sensor ${sensor} alone (${SOLO[sensor - 1] ?? ""})`, onclick: () => alone(sensor - 1) },
      el("span", {}, `Sensor ${sensor}`), SOLO[sensor - 1] && el("kbd", {}, SOLO[sensor - 1]));
    const shown = picture(spectrogram, sensor, `sensor ${sensor}, ${shownSeconds(item).toFixed(0)} seconds; the marked part is asked about`);
    const head = el("div.head-line", {});
    const mark = el("div.asked-part", {});
    shown.append(mark, ...missing(item, spectrogram), head);
    shown.addEventListener("click", (event) => {
      const own = shown.getBoundingClientRect();
      sought(((event.clientX - own.left) / own.width) * shownSeconds(item));
    });
    heads.push(head);
    marks.push(mark);
    buttons.push(button);
    return el("div.review-row", {}, el("div.review-sensor", {}, button, said && opinion(said, classes)), shown);
  }

  const me = {
    box,
    load(spectrogram) {
      replace(box, spectrogram.sensors.map((sensor) => row(sensor, spectrogram)), axis(item));
      me.mark(item.start_sample, item.stop_sample);
    },
    fail(error, again) {
      replace(box, el("div.failed", { role: "alert" }, el("p", {}, error.message), el("button", { type: "button", onclick: again }, "Try again")));
    },
    move(seconds) {
      const left = `${(100 * seconds) / shownSeconds(item)}%`;
      for (const head of heads) head.style.left = left;
    },
    mark(start, stop) {
      for (const mark of marks) {
        mark.style.left = place(item, start);
        mark.style.width = `${(100 * (stop - start)) / (item.shown_stop_sample - item.shown_start_sample)}%`;
      }
    },
    solo(only) {
      buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(number === only)));
    },
    get n() { return buttons.length; },
  };
  return me;
}

function opinion(said, classes) {
  if (said.role !== "used") return el("small", { title: ROLES[said.role] }, SHORT[said.role] ?? said.role);
  const probability = said.probability ?? 1 / (1 + Math.exp(-Math.abs(said.log_odds)));
  const which = classes.indexOf(said.says);
  return el("small", { title: `${ROLES.used}; p-value ${said.p_value ?? "none"}` },
    el("span", { class: which < 0 ? "" : `class-${which}` }, said.says ? `${words(said.says)} ${probabilityText(probability)}` : "no opinion"),
    ` · weight ${said.weight?.toFixed(2) ?? "–"}`);
}

function missing(item, spectrogram) {
  return spectrogram.missing.map(([start, stop]) => {
    const box = el("div.not-kept", { title: "no sound is kept here" });
    box.style.left = place(item, start);
    box.style.width = `${(100 * (stop - start)) / (item.shown_stop_sample - item.shown_start_sample)}%`;
    return box;
  });
}

/** Seconds from the beginning of what is asked about. */
function axis(item) {
  const first = Math.ceil((item.shown_start_sample - item.start_sample) / item.rate_hz);
  const last = Math.floor((item.shown_stop_sample - item.start_sample) / item.rate_hz);
  const step = Math.max(1, Math.ceil((last - first) / 12));
  const marks = [];
  for (let second = first; second <= last; second += step) {
    const at = secondsInto(item, item.start_sample + second * item.rate_hz) / shownSeconds(item);
    if (at < 0.03 || at > 0.97) continue;
    const mark = el("span", {}, `${second > 0 ? "+" : ""}${second} s`);
    mark.style.left = `${100 * at}%`;
    marks.push(mark);
  }
  return el("div.review-row", { "aria-hidden": "true" }, el("span", {}), el("div.review-axis", {}, marks));
}
