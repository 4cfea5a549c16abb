// Elements, and how values are written.

/** An element: el("p.warning", { title: "why" }, "text", other). Text is always text, never markup. */
export function el(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "data") Object.assign(made.dataset, value);
    else if (key in made && key !== "list" && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** The same for drawings: svg("path", { d: "M0 0h9" }). */
export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const replace = (root, ...children) => root.replaceChildren(...children.flat(Infinity).filter(Boolean));

/** Make an element like a fresh one without exchanging it: whoever points at it, or has the focus there, stays. */
export function settle(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    // An attribute would be a style of somebody else's; our own we set by script.
    if (name === "style") old.style.cssText = fresh.style.cssText;
    else old.setAttribute(name, value);
  }
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((child, n) => (before[n] ? settle(before[n], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

const two = (number) => String(number).padStart(2, "0");

/** Local time of an ISO 8601 text, to the second. */
export function clock(iso) {
  const at = new Date(iso);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function day(iso) {
  const at = new Date(iso);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** A moment: local time on the page, the day and UTC for whoever points at it. */
export const time = (iso, written = clock) =>
  el("time", { datetime: iso, title: `${day(iso)} local, ${new Date(iso).toISOString().slice(0, 19)}Z` }, written(iso));

/** How long, in words: 48 s, 12 min, 3 h, 5 d; not below 0 where the clock of the sound is ahead. */
export function long(seconds) {
  if (seconds < 0) return "0 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(100 * share)} %`);
/** A probability in percent; never 100 %, which would claim too much. */
export const probabilityText = (probability) => (probability > 0.99 ? "> 99 %" : percent(probability));
export const words = (name) => String(name).replaceAll("_", " ");
export const inARow = (items) => [items.slice(0, -1).join(", "), ...items.slice(-1)].filter(Boolean).join(" and ");
export const counted = (n, thing) => `${n} ${thing}${n === 1 ? "" : "s"}`;

/** Designed, not accidental: what a page shows while it has nothing to show. */
export const loading = (what) => el("p.loading", { role: "status" }, `Loading ${what} …`);
export const empty = (title, ...cure) => el("div.empty", {}, el("h2", {}, title), el("p", {}, ...cure));
export const failed = (error, again) =>
  el("div.failed", { role: "alert" }, el("h2", {}, "This could not be loaded"), el("p", {}, error.message),
    again && el("button", { type: "button", onclick: again }, "Try again"));
