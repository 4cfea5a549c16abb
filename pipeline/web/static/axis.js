// An axis of time: where marks stand, and how they are written.

import { clock, day } from "./dom.js";

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600];

export const iso = (seconds) => new Date(1000 * seconds).toISOString();

/** Moments for marks of local time, at least `apart` pixels from each other. */
export function marks(begin, end, width, apart = 90) {
  const wanted = ((end - begin) * apart) / width;
  const step = STEPS.find((one) => one >= wanted) ?? STEPS.at(-1);
  // Hours and days begin where the clock on the wall says so.
  const offset = 60 * new Date(1000 * begin).getTimezoneOffset();
  const found = [];
  for (let at = Math.ceil((begin - offset) / step) * step + offset; at < end; at += step) found.push(at);
  return { step, moments: found };
}

/** As short as the distance of the marks allows; midnight has its day. */
export function mark(seconds, step) {
  const text = iso(seconds);
  const hours = clock(text);
  if (step >= 86400 || hours === "00:00:00") return day(text).slice(5, 10);
  return step < 60 ? hours : hours.slice(0, 5);
}

/** From when to when, with the day where that is needed. */
export function span(begin, end) {
  const [from, to] = [iso(begin), iso(end)];
  const precise = end - begin < 300 ? clock : (text) => clock(text).slice(0, 5);
  const date = (text) => day(text).slice(0, 10);
  const same = date(from) === date(to);
  return `${date(from)} ${precise(from)} – ${same ? "" : `${date(to)} `}${precise(to)}`;
}
