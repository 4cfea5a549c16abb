// States of sensors and roles in decisions: always a shape and a word, never a colour alone.

import { el, svg } from "./dom.js";

const SHAPES = {
  good: "M12 2a10 10 0 1 0 0 20a10 10 0 0 0 0-20zm-1.500 14.500l-4.500-4.500 1.600-1.600 2.900 2.900 5.900-5.900 1.600 1.600z",
  degraded: "M12 2L1 21h22zm-1.200 7h2.400v6h-2.400zm0 7.600h2.400v2.400h-2.400z",
  bad: "M7.500 2h9L22 7.500v9L16.500 22h-9L2 16.500v-9zm1.100 4.900L6.900 8.600l3.400 3.400-3.400 3.400 1.700 1.700 3.400-3.400 3.400 3.400 1.700-1.700-3.400-3.400 3.400-3.400-1.700-1.700-3.400 3.400z",
  off: "M12 2a10 10 0 1 0 0 20a10 10 0 0 0 0-20zM6.500 10.800h11v2.400h-11z",
  unknown: "M12 2a10 10 0 1 0 0 20a10 10 0 0 0 0-20zm0 2.300a7.700 7.700 0 1 1 0 15.400a7.700 7.700 0 0 1 0-15.400zm-1.100 10.900h2.200v2.200h-2.200zM8.500 9.500a3.500 3.500 0 1 1 5 3.200c-.4.200-.6.500-.6 1v.4h-2v-.6c0-1.200.6-2 1.600-2.500a1.500 1.500 0 1 0-2-1.500z",
};

export const shape = (state) =>
  svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" },
    svg("path", { d: SHAPES[state] ?? SHAPES.unknown, fill: "currentColor", "fill-rule": "evenodd" }));

/** A state as everybody sees it. */
export const badge = (state, word = state) => el(`span.badge.${state}`, {}, shape(state), word);

/** The role of a sensor in a decision, for people. */
export const ROLES = {
  used: "used",
  absent: "not used: part of the segment is missing",
  off: "not used: switched off",
  masked: "not used: its health is bad",
  calibrating: "not used: no reference set yet",
  untrained: "not used: training refused too much of its sound",
  anomalous: "not used: its p-value is too small",
};

/** Whether a decision is for the first class (0) or for another one (1); null if it is undecided. Log-odds are of the second of two. */
export const side = (decision) => {
  if (decision.label === null) return null;
  if (decision.fused_log_odds !== null || !decision.probabilities) return decision.fused_log_odds > 0 ? 1 : 0;
  return Object.keys(decision.probabilities)[0] === decision.label ? 0 : 1;
};
export const sideColour = (decision) => (side(decision) === null ? "--undecided" : `--class-${side(decision)}`);
