// Everything on one axis of time: passages, decisions, states of the sensors, and when nothing can be known.

import { get } from "../api.js";
import { iso, span } from "../axis.js";
import { colorOf } from "../class-colors.js";
import { clock, el, empty, failed, loading, replace, words } from "../dom.js";
import * as live from "../live.js";
import { draw, itemsOf, rowsOf, same } from "../timeline-chart.js";
import { opened, take } from "../timeline-data.js";
import { details, sentence, told, when } from "../timeline-details.js";

const RANGES = [["10 min", 600], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400], ["7 d", 604800], ["30 d", 2592000]];
const SHORTEST = 20;
const ZOOMED = 601; // shorter views show every segment
const FIRST = 3600;
const LONGEST = 200 * 86400;
const FINE = [86400, 32 * 86400];
const PIXELS_PER_BIN = 4;
const SETTLE_MS = 120;
const RELOAD_MS = 2000;
const STEP_MS = 1000;
const MOST_LISTED = 300;
const HELP = "Keys: + and − zoom, arrows left and right move, Home and End go to the beginning and to now, "
  + "arrows up and down choose a row, N and P the next and previous thing in it, Enter shows its details, Escape closes them.";

export async function show(root) {
  const chosenRange = new URLSearchParams(location.search);
  const state = {
    data: null, loadedAt: 0, asked: 0, follow: true, grows: false, list: false, chosen: null, row: 0, connection: "connecting", rateHz: 16000,
    view: { begin: 0, end: 0 }, heardAt: null,
  };
  const parts = frame();
  replace(root, parts.page);
  /** Without the padding: a drawing that reached into it would lose its newest moments there. */
  const size = () => {
    const { paddingLeft, paddingRight } = getComputedStyle(parts.chart);
    return Math.max(200, Math.floor(parts.chart.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight)));
  };

  /** The server's clock, as far as it is known to go on. */
  function now() {
    if (!state.data) return Date.now() / 1000;
    const passed = (performance.now() - state.loadedAt) / 1000;
    const heard = state.connection === "live" ? passed : Math.max(0, ((state.heardAt ?? state.loadedAt) - state.loadedAt) / 1000);
    return state.data.now + heard;
  }

  async function load() {
    const mine = ++state.asked;
    const { begin, end } = around(state.view);
    const bins = (size() * (end - begin)) / (state.view.end - state.view.begin) / PIXELS_PER_BIN;
    try {
      const answer = await get("/timeline", { begin: iso(begin), end: iso(end), bins: Math.min(2000, Math.max(20, Math.round(bins))) });
      if (mine !== state.asked) return;
      state.data = opened(answer);
      live.since(answer.last_id).forEach((event) => take(state.data, event));
      state.loadedAt = performance.now();
      parts.failure.replaceChildren();
      if (state.grows) fit();
      render();
    } catch (error) {
      if (mine !== state.asked) return;
      replace(parts.failure, failed(error, load));
      if (!state.data) replace(parts.chart);
    }
  }
  let settling = null;
  const settle = (after = SETTLE_MS) => { clearTimeout(settling); settling = setTimeout(load, after); };
  let reloadAt = 0;
  /** Asked for by events, which may come in showers. */
  const reload = () => {
    if (reloadAt > performance.now()) return;
    reloadAt = performance.now() + RELOAD_MS;
    settle(RELOAD_MS / 2);
  };

  function isCovered() {
    const { data, view } = state;
    if (!data) return false;
    const inside = data.begin <= view.begin + 1 && (data.end >= view.end || state.follow);
    const ratio = (data.end - data.begin) / (view.end - view.begin);
    return inside && ratio < 4;
  }

  const isZoomed = () => state.view.end - state.view.begin <= ZOOMED;
  const rows = () => rowsOf(state.data, isZoomed());

  /** A new array is shown from its beginning; an older one for the last hour. */
  function fit() {
    const end = now();
    const begin = Math.max(state.data.known_since ?? 0, end - FIRST);
    state.view = { begin: Math.min(begin, end - SHORTEST), end };
    if (!isCovered()) settle();
  }

  function look(begin, end, { follow = false } = {}) {
    state.grows = false;
    const length = Math.min(Math.max(end - begin, SHORTEST), LONGEST);
    const middle = (begin + end) / 2;
    state.view = follow ? { begin: end - length, end } : { begin: middle - length / 2, end: middle + length / 2 };
    state.follow = follow;
    render();
    if (!isCovered()) settle();
  }
  const zoom = (factor, at = null) => {
    const { begin, end } = state.view;
    if (state.follow && at === null) return look(end - (end - begin) * factor, end, { follow: true });
    const center = at ?? (begin + end) / 2;
    look(center - (center - begin) * factor, center + (end - center) * factor);
  };
  const pan = (share) => {
    const by = (state.view.end - state.view.begin) * share;
    // Nothing is to be seen beyond the present.
    const end = Math.min(state.view.end + by, now() + (state.view.end - state.view.begin) * 0.5);
    look(end - (state.view.end - state.view.begin), end);
  };
  const toNow = (length = state.view.end - state.view.begin) => look(now() - length, now(), { follow: true });
  const toBeginning = () => {
    const length = state.view.end - state.view.begin;
    const first = state.data?.known_since ?? state.view.begin;
    look(first - length * 0.05, first + length * 0.95);
  };

  function render() {
    const { data, view } = state;
    describe();
    if (!data) return;
    parts.chart.classList.toggle("live", state.follow);
    parts.uncounted.hidden = !(data.tally.uncounted_until > view.begin);
    if (!parts.uncounted.hidden) parts.uncounted.textContent = `Decisions before ${span(data.tally.uncounted_until, data.tally.uncounted_until + 1).split(" –")[0]} are no longer, or were never, counted: no bars there means nothing.`;
    if (data.known_since === null) {
      replace(parts.chart, empty("Nothing was heard yet", "As soon as the source delivers sound, it appears here. The page Now shows what it waits for."));
      return;
    }
    if (state.list) listed();
    else drawn();
  }

  function describe() {
    const key = state.data && `${state.data.classes} ${isZoomed()}`;
    if (key && parts.legend.dataset.key !== key) {
      parts.legend.dataset.key = key;
      replace(parts.legend, legend(state.data, isZoomed()));
    }
    const { begin, end } = state.view;
    parts.range.textContent = span(begin, end);
    parts.now.setAttribute("aria-pressed", String(state.follow));
    for (const button of parts.ranges) button.setAttribute("aria-pressed", String(Math.abs(end - begin - Number(button.dataset.seconds)) < 1));
    parts.list.setAttribute("aria-pressed", String(state.list));
  }

  let current = null;
  function drawn() {
    current = draw(state.data, { ...state.view, width: size(), until: now(), chosen: state.chosen, zoomed: isZoomed() });
    const focused = document.activeElement === parts.canvas;
    parts.canvas.replaceChildren(current.drawing);
    if (!parts.canvas.isConnected) replace(parts.chart, parts.canvas);
    if (focused) parts.canvas.focus({ preventScroll: true });
  }

  function listed() {
    const { begin, end } = state.view;
    const all = rows().flatMap((row) => itemsOf(state.data, row, now()))
      .filter((item) => item.end >= begin && item.begin <= end && isNews(item))
      .sort((one, other) => other.begin - one.begin);
    const lines = all.slice(0, MOST_LISTED).map((item) => {
      const [title, why] = told(item, state.data);
      return el("tr", {},
        el("td.number", {}, when(item)), el("td", {}, item.row.title), el("td", {}, title), el("td", {}, why),
        el("td", {}, el("button", { type: "button", "aria-label": `Details of ${title} at ${clock(iso(item.begin))}`, onclick: (event) => open(item, event.currentTarget) }, "Details")));
    });
    const more = all.length > lines.length ? ` The newest ${lines.length} of ${all.length}: zoom in to see the others.` : "";
    replace(parts.chart, el("div.scroll", { tabIndex: 0, role: "region", "aria-label": "List of what happened" }, el("table", {},
      el("caption", {}, `What happened ${span(begin, end)}, the newest first; counts of decisions are per ${state.data.tally.bin_seconds} s.${more}`),
      el("thead", {}, el("tr", {}, ["When", "Row", "What", "Why", ""].map((title) => el("th", { scope: "col" }, title)))),
      el("tbody", {}, lines.length ? lines : el("tr", {}, el("td", { colSpan: 5 }, "Only sound and decisions: no passages, no faults, no gaps."))))));
  }

  let opener = null;
  function open(item, from = parts.canvas, { focus = true } = {}) {
    state.chosen = item;
    opener = from;
    const { panel, heading } = details(item, { data: state.data, rateHz: state.rateHz, close });
    replace(parts.side, panel);
    parts.page.classList.add("with-details");
    render();
    if (focus) heading.focus();
  }
  function close() {
    parts.side.replaceChildren();
    parts.page.classList.remove("with-details");
    render();
    (opener?.isConnected ? opener : parts.canvas).focus({ preventScroll: true });
  }
  function choose(item) {
    state.chosen = item;
    parts.spoken.textContent = sentence(item, state.data);
    const { begin, end } = state.view;
    if (item.begin < begin || item.begin > end) look(item.begin - (end - begin) / 2, item.begin + (end - begin) / 2);
    else render();
  }

  /** Another row: what is in its middle is chosen, if there is anything. */
  function toRow(step) {
    const all = rows();
    state.row = (state.row + step + all.length) % all.length;
    const { begin, end } = state.view;
    const items = itemsOf(state.data, all[state.row], now()).filter((item) => item.end >= begin && item.begin <= end);
    if (items.length) choose(items.at(-1));
    else parts.spoken.textContent = `${all[state.row].title}: nothing here`;
  }
  function toItem(step) {
    const row = rows()[state.row] ?? rows()[0];
    const { begin, end } = state.view;
    const items = itemsOf(state.data, row, now()).filter((item) => item.end >= begin && item.begin <= end);
    const place = state.chosen ? items.findIndex((item) => same(item, state.chosen)) : -1;
    const next = place < 0 ? items.at(step > 0 ? 0 : -1) : items[place + step];
    if (next) choose(next);
    else parts.spoken.textContent = `${row.title}: nothing ${step > 0 ? "later" : "earlier"} in this view`;
  }

  const KEYS = {
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "−": () => zoom(2), _: () => zoom(2),
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), Home: toBeginning, End: () => toNow(),
    ArrowUp: () => toRow(-1), ArrowDown: () => toRow(1), n: () => toItem(1), p: () => toItem(-1),
    Enter: () => state.chosen && open(state.chosen), " ": () => state.chosen && open(state.chosen),
    Escape: () => parts.side.childElementCount && close(),
  };
  parts.canvas.addEventListener("keydown", (event) => {
    const action = KEYS[event.key] ?? KEYS[event.key.toLowerCase()];
    if (!action || !state.data || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  const timeAt = (event) => {
    const place = (event.clientX - parts.canvas.getBoundingClientRect().left - current.left) / current.inner;
    return state.view.begin + Math.min(Math.max(place, 0), 1) * (state.view.end - state.view.begin);
  };
  parts.canvas.addEventListener("wheel", (event) => {
    if (!current) return;
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / current.inner);
    else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), state.follow ? null : timeAt(event));
  }, { passive: false });
  pointers(parts.canvas, {
    drag: (pixels) => current && pan(-pixels / current.inner),
    pinch: (factor, event) => zoom(factor, timeAt(event)),
    // Looked up when it is touched: the drawing may be another one when it is let go.
    touched: (target) => current?.items.get(target.closest?.(".item")),
    click: (item) => {
      state.row = Math.max(0, rows().findIndex((row) => row.key === item.row.key));
      open(item, parts.canvas, { focus: false });
    },
    hover: (target) => {
      const item = current?.items.get(target.closest?.(".item"));
      parts.hint.textContent = item ? sentence(item, state.data) : "";
    },
  });

  parts.zoomIn.onclick = () => zoom(0.5);
  parts.zoomOut.onclick = () => zoom(2);
  parts.back.onclick = () => pan(-0.5);
  parts.forth.onclick = () => pan(0.5);
  parts.now.onclick = () => toNow();
  parts.list.onclick = () => { state.list = !state.list; render(); };
  for (const button of parts.ranges) button.onclick = () => {
    const seconds = Number(button.dataset.seconds);
    const middle = (state.view.begin + state.view.end) / 2;
    if (state.follow) toNow(seconds);
    else look(middle - seconds / 2, middle + seconds / 2);
  };

  const stops = [
    live.on("status", (status) => { state.rateHz = status.rate_hz; state.heardAt = performance.now(); }),
    live.on("connection", (connection) => {
      // What was missed meanwhile is in the journal.
      if (connection === "live" && state.connection !== "live" && state.data) reload();
      state.connection = connection;
    }),
    live.on("events", (events) => {
      if (!state.data) return;
      const anew = events.map((event) => take(state.data, event)).some(Boolean);
      if (anew) reload();
    }),
  ];
  const stepping = setInterval(() => {
    if (!state.data || document.hidden || !state.follow || state.connection !== "live") return;
    const length = state.view.end - state.view.begin;
    if (state.grows) fit();
    else state.view = { begin: now() - length, end: now() };
    // A list that moves under the reader's eyes cannot be read.
    if (!state.list) render();
    else describe();
    if (!isCovered()) settle();
  }, STEP_MS);
  const resized = new ResizeObserver(() => state.data && !state.list && render());
  resized.observe(parts.chart);

  const asked = Date.parse(chosenRange.get("at") ?? "") / 1000;
  if (Number.isFinite(asked)) look(asked - 300, asked + 300);
  else {
    look(Date.now() / 1000 - FIRST, Date.now() / 1000, { follow: true });
    state.grows = true;
  }
  return () => {
    stops.forEach((stop) => stop());
    clearInterval(stepping);
    clearTimeout(settling);
    resized.disconnect();
  };
}

/** Somewhat more than is seen, so that one can move; but not so much that the server would count less finely. */
function around({ begin, end }) {
  const length = end - begin;
  const fine = FINE.find((one) => length <= one + 1) ?? LONGEST;
  const margin = Math.max(0, Math.min(length / 2, (fine - length) / 2));
  return { begin: Math.max(86400, Math.ceil(begin - margin)), end: end + margin };
}

/** Sound that was heard and decided about is not worth a line, nor once more for every sensor that nobody listened. */
const isNews = ({ kind, about }) =>
  kind !== "decision" && !(kind === "listening" && about.kind === "heard") && !(kind === "state" && about.kind === "unknown");

/** What stays while the drawing changes. */
function frame() {
  const button = (text, name = text) => el("button", { type: "button", title: name, "aria-label": name }, text);
  const parts = {
    zoomIn: button("+", "Zoom in"), zoomOut: button("−", "Zoom out"), back: button("‹", "Earlier"), forth: button("›", "Later"),
    now: el("button", { type: "button", "aria-pressed": "true" }, "Now"),
    list: el("button", { type: "button", "aria-pressed": "false" }, "List"),
    ranges: RANGES.map(([text, seconds]) => el("button", { type: "button", data: { seconds: String(seconds) }, "aria-pressed": "false" }, text)),
    range: el("p.range", { role: "status" }),
    canvas: el("div.canvas", { tabIndex: 0, role: "application", "aria-label": `Timeline. ${HELP}`, "aria-describedby": "timeline-spoken" }),
    chart: el("div.chart.card", {}, loading("the timeline")),
    side: el("div.side"),
    failure: el("div"),
    legend: el("ul.plain.legend", { "aria-label": "Legend" }),
    hint: el("p.hint", { "aria-hidden": "true" }),
    uncounted: el("p.note.degraded", { hidden: true }),
    spoken: el("p.unseen", { id: "timeline-spoken", "aria-live": "polite" }),
  };
  parts.page = el("div.timeline", {},
    el("div.head", {}, el("h1", {}, "Timeline"), parts.range),
    el("div.row.tools", {},
      el("div.choices", { role: "group", "aria-label": "Range" }, parts.ranges),
      el("div.choices", { role: "group", "aria-label": "Move and zoom" }, parts.back, parts.zoomOut, parts.zoomIn, parts.forth, parts.now),
      parts.list),
    parts.failure, parts.uncounted,
    el("div.board", {}, el("div.stack", {}, parts.chart, parts.hint, parts.legend), parts.side),
    el("details.keys", {}, el("summary", {}, "Keys"), el("p", {}, HELP)),
    parts.spoken);
  return parts;
}

const LEGEND = [
  ["heard", "heard"], ["gap", "sound missing"], ["waiting", "no sound came"], ["not_listening", "not listening: nothing ran"],
  ["undecided", "no class"],
  ["good", "good (low)"], ["degraded", "degraded (half)"], ["bad", "bad (full)"], ["masked", "masked"], ["refusal", "refused (from the top)"],
  ["sound-kept", "sound kept"], ["sound-removed", "sound no longer kept"], ["event_noticed", "◆ event"], ["fault_suspected", "▲ fault"],
];
function legend({ classes, names }, zoomed) {
  const entry = (kind, text) => el("li", {}, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), text);
  const ofClass = classes.map((label, n) => {
    const made = entry("", `${names[label] ?? words(label)}${zoomed ? ` (${n ? "below" : "above"} the line)` : ""}`);
    made.firstChild.style.background = `var(${colorOf(label, classes)})`;
    return made;
  });
  return [...ofClass, ...LEGEND.map(([kind, text]) => entry(kind, text))];
}

/** Dragging, pinching and clicking with whatever points. */
function pointers(canvas, { drag, pinch, touched, click, hover }) {
  const down = new Map();
  let moved = 0;
  let item = null;
  const apart = () => { const [one, other] = [...down.values()]; return Math.max(10, Math.abs(one.x - other.x)); };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    if (!down.size) { moved = 0; item = touched(event.target); }
    down.set(event.pointerId, { x: event.clientX });
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = down.get(event.pointerId);
    if (!before) return hover(event.target);
    const pixels = event.clientX - before.x;
    if (down.size === 2) {
      const was = apart();
      down.set(event.pointerId, { x: event.clientX });
      moved = Infinity;
      return pinch(was / apart(), event);
    }
    moved += Math.abs(pixels);
    if (moved < 5) return;
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, { x: event.clientX });
    drag(pixels);
  });
  const up = (event) => {
    if (!down.delete(event.pointerId) || down.size) return;
    if (event.type === "pointerup" && moved < 5 && item) click(item);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => hover(canvas));
}
