// A decision for people: what, how sure, and who had a say in it.

import { counted, el, percent, svg, time, words } from "./dom.js";
import { ROLES, side, sideColour } from "./states.js";

const STRIP_SECONDS = 120;
const HEIGHT = 30;

export const label = (decision) => (decision.label === null ? "undecided" : words(decision.label));

const outcome = (one) => (one.label === null ? "undecided" : `${words(one.label)} ${percent(one.probability)}`);

/** The headline: the label as large as it is important, and what it rests on. */
export function headline(decision) {
  const used = decision.roles.filter((role) => role === "used").length;
  const made = el("div.headline", { data: { side: side(decision) ?? "none" } },
    el("p.verdict", {}, label(decision)),
    el("p.sure", {},
      decision.probability !== null && el("strong.number", {}, percent(decision.probability)),
      decision.label === null ? el("span", {}, decision.reason) : el("span", {}, "probability")),
    el("p.quiet", {}, `decided by ${used} of ${counted(decision.roles.length, "sensor")} at `, time(decision.time), " · model ",
      el("a", { href: `/models?model=${encodeURIComponent(decision.model)}` }, decision.model), ` · event ${decision.id}`));
  made.style.setProperty("--side", `var(${sideColour(decision)})`);
  return made;
}

/** What each sensor had to say, and what would have been decided without it. */
export function votes(decision) {
  return el("ul.votes.plain", { "aria-label": "What each sensor had to say" }, decision.roles.map((role, n) => {
    const used = role === "used";
    const bar = el("span.bar", { "aria-hidden": "true" }, el("span"));
    bar.firstChild.style.width = percent(decision.weights[n]).replace(" ", "");
    const p = decision.p_values[n];
    return el("li", { data: { role } },
      el("a", { href: `/sensors/${n + 1}?event=${decision.id}` }, `Sensor ${n + 1}`),
      bar,
      el("span.number", {}, el("span.unseen", {}, "weight "), decision.weights[n].toFixed(2)),
      el("small", {}, ROLES[role], p === null ? "" : ` · p ${p < 0.001 ? "< 0.001" : p.toFixed(3)}`, used ? without(decision, n) : ""));
  }));
}

function without(decision, n) {
  const other = decision.without[n];
  const same = other.label === decision.label;
  return [" · without it ", same ? `still ${outcome(other)}` : el("strong", {}, outcome(other))];
}

/** In one sentence, whether a single sensor turned the decision. */
export function turned(decision) {
  const who = decision.without.flatMap((other, n) => (other.label === decision.label ? [] : [[n + 1, other]]));
  if (!who.length) return "No single sensor has turned it: without any one of them it would be the same.";
  return who.map(([n, other]) => `Without sensor ${n} it would be ${outcome(other)}.`).join(" ");
}

/** The last two minutes: a bar for each decision, taller for surer; where there is no bar nothing was decided about. */
export function strip(decisions, now) {
  const since = now - 1000 * STRIP_SECONDS;
  const shown = decisions.filter((one) => Date.parse(one.time) >= since);
  const counts = new Map();
  for (const one of shown) counts.set(label(one), [(counts.get(label(one))?.[0] ?? 0) + 1, sideColour(one)]);
  const told = [...counts].map(([name, [n]]) => `${n} ${name}`).join(", ") || "no decision";
  const bars = shown.map((one) => {
    const height = one.label === null ? 0.25 * HEIGHT : HEIGHT * (2 * one.probability - 1) * 0.7 + 0.3 * HEIGHT;
    const bar = svg("rect", { x: (Date.parse(one.time) - since) / 1000, y: HEIGHT - height, width: 0.42, height });
    bar.style.fill = `var(${sideColour(one)})`;
    return bar;
  });
  const drawing = svg("svg", { viewBox: `0 0 ${STRIP_SECONDS} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Decisions of the last ${STRIP_SECONDS / 60} minutes: ${told}` }, bars);
  return el("div.strip", {}, drawing,
    el("div.row.apart", {}, el("small", {}, "2 minutes ago"),
      el("span.legend.row", {}, [...counts].sort().map(([name, [n, colour]]) => {
        const swatch = el("span.swatch", { "aria-hidden": "true" });
        swatch.style.background = `var(${colour})`;
        return el("small.row", {}, swatch, `${name} ${n}`);
      })),
      el("small", {}, "now")));
}
