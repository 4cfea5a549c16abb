// What is worth a line for people, in the words of the console of `gemmed run`.

import { el, time, words } from "./dom.js";
import { shape } from "./states.js";

const ANOMALIES = ["fault_suspected", "event_noticed", "common_fault", "label_doubted"];
const TROUBLES = [
  "source_trouble", "clock_jumped", "storage_low", "storage_read_only", "journal_replaced", "model_unusable",
  "retraining_failed", "challenger_refused", "label_refused", "run_died",
];
const OTHERS = ["retraining_started", "retraining_finished", "shadow_started", "storage_recovered", "settings_reloaded"];
const SAID = ["where", "message", "why", "error", "status", "run_that_died", "model", "seconds", "reasons"];

/** Types of events that may be news, to ask the server for. */
export const TYPES = ["state_changed", "model_changed", "gap", ...ANOMALIES, ...TROUBLES, ...OTHERS];

/** { text, state } of an event, where the state says how serious it is; null if it is no news. */
export function told(event, rateHz) {
  const kind = event.type;
  if (kind === "state_changed") {
    if (event.to === event.from) return null;
    const causes = event.causes.length ? `: ${event.causes.map(words).join(", ")}` : "";
    return { text: `sensor ${event.sensor} is ${event.to}${causes}`, state: event.to };
  }
  if (kind === "model_changed") return { text: event.model ? `model ${event.model} decides` : "no model decides yet", state: "news" };
  if (kind === "gap") return { text: `${((event.stop_sample - event.start_sample) / rateHz).toFixed(2)} s are missing: ${event.reason}`, state: "degraded" };
  if (ANOMALIES.includes(kind)) return { text: `${words(kind)}: ${words(event.reason)}`, state: "degraded" };
  if (!TROUBLES.includes(kind) && !OTHERS.includes(kind)) return null;
  const said = SAID.filter((name) => event[name]).map((name) => String(event[name])).join(" ");
  const trouble = TROUBLES.includes(kind) || "error" in event;
  return { text: said ? `${words(kind)}: ${said}` : words(kind), state: trouble ? "bad" : "news" };
}

/** A line of the list. */
export const line = (event, { text, state }) =>
  el("li", { data: { id: event.id } },
    el("span", { class: state }, shape(state === "news" ? "good" : state)),
    el("span", {}, text, " ", el("small", {}, time(event.time), ` · event ${event.id}`)));
