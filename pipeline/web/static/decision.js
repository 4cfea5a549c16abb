// A decision for people: what, how sure, and who had a say in it.

import { counted, el, percent, probabilityText, svg, time, words } from "./dom.js";
import { shownName } from "./names.js";
import { side, sideColour } from "./states.js";

const STRIP_SECONDS = 120;
const HEIGHT = 30;
const LEAST_SHARE = 0.04;

const label = (decision) => (decision.label !== null ? words(decision.label) : decision.reason === "nobody" ? "nobody" : "undecided");

const outcome = (one) => (one.label === null ? "undecided" : `${words(one.label)} ${probabilityText(one.probability)}`);

/** The headline: the label as large as it is important, and what it rests on. */
export function headline(decision) {
  const used = decision.roles.filter((role) => role === "used").length;
  const made = el("div.headline", { data: { side: side(decision) ?? "none" } },
    el("p.verdict", {}, label(decision)),
    el("p.sure", {}, sure(decision)),
    el("p.quiet", {}, `decided by ${used} of ${counted(decision.roles.length, "sensor")} at `, time(decision.time), " · model ",
      el("a", { href: `/models?model=${encodeURIComponent(decision.model)}` }, decision.model), ` · event ${decision.id}`));
  made.style.setProperty("--side", `var(${sideColour(decision)})`);
  return made;
}

function sure(decision) {
  const strong = (share) => share !== null && el("strong.number", {}, percent(share));
  if (decision.reason === "nobody") return [strong(decision.presence), el("span", {}, "probability that somebody is there")];
  return [strong(decision.probability), el("span", {}, decision.label === null ? decision.reason : "probability")];
}

/** In one sentence, whether a single sensor turned the decision. */
export function turned(decision) {
  const who = decision.without.flatMap((other, n) => (other.label === decision.label ? [] : [[n + 1, other]]));
  if (!who.length) return "No single sensor has turned it: without any one of them it would be the same.";
  return who.map(([n, other]) => `Without sensor ${n} it would be ${outcome(other)}.`).join(" ");
}

/** The last two minutes: a bar for each segment, as tall as it is probable that somebody is there. */
export function strip(decisions, now, names) {
  const since = now - 1000 * STRIP_SECONDS;
  const shown = decisions.filter((one) => Date.parse(one.time) >= since);
  const counts = new Map();
  for (const one of shown) counts.set(nameIn(one, names), (counts.get(nameIn(one, names)) ?? 0) + 1);
  const summary = [...counts].map(([name, n]) => `${n} ${name}`).join(", ") || "no decision";
  const bars = shown.map((one) => {
    const height = HEIGHT * Math.max(LEAST_SHARE, heightOf(one));
    const at = (Date.parse(one.time) - since) / 1000;
    return svg("rect", { class: one.label === null ? "no-class" : "class", x: at.toFixed(2), y: (HEIGHT - height).toFixed(2), width: 0.42, height: height.toFixed(2) });
  });
  const drawing = svg("svg", { viewBox: `0 0 ${STRIP_SECONDS} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Segments of the last ${STRIP_SECONDS / 60} minutes: ${summary}` }, bars);
  const heights = shown.some((one) => one.presence !== null) ? "probability that somebody is there" : "probability of the class";
  return el("div.strip", {}, drawing,
    el("div.row.apart", {}, el("small", {}, "−2 min"), el("small", {}, heights), el("small", {}, "now")));
}

/** The probability that somebody is there; without one, how sure the class is. */
const heightOf = (one) => one.presence ?? (one.label === null ? 0.25 : 0.7 * (2 * one.probability - 1) + 0.3);

function nameIn(one, names) {
  if (one.label !== null) return shownName(one.label, names);
  return one.reason === "nobody" ? "Nobody" : "No class";
}
