// What passed: last night, by day and hour, and passage by passage, with sound and labels.

import { get } from "../api.js";
import { clock, counted, day as dayText, el, empty, failed, loading, long, probabilityText, replace } from "../dom.js";
import { byClass, calendar, named, span } from "../history-calendar.js";
import * as live from "../live.js";
import * as outbox from "../outbox.js";
import { details, listen, nameOf, verdict } from "../passage-view.js";
import { labelControl } from "../passage-label.js";

const PORTION = 50;
const DAYS = 31;
const TYPING_MS = 250;
const LEAST = [["", "any"], ["0.6", "60 %"], ["0.8", "80 %"], ["0.9", "90 %"], ["0.95", "95 %"]];
const LABELED = [["", "all"], ["true", "labeled"], ["false", "not labeled"]];
const NO_LABEL = "no label";
const CONTROLS = ["search", "label", "least", "labeled"];
const FILTERS = [...CONTROLS, "day", "hour"];
const CHANGES = new Set(["passage_started", "passage_updated", "passage_ended", "label_given"]);
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });

/** The filters in the address of the page. */
function chosenIn(query) {
  const given = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  const isDay = /^\d{4}-\d\d-\d\d$/.test(given.day);
  const hour = isDay && /^\d{1,2}$/.test(given.hour) && Number(given.hour) < 24 ? Number(given.hour) : null;
  return { ...given, day: isDay ? given.day : null, hour, passage: query.get("passage") };
}

/** The same filters as the API has them. */
function asked({ search, label, least, labeled, day, hour }) {
  const [since, until] = day === null ? [null, null] : span(day, hour);
  return { search: search || null, label: label || null, least_probability: least || null, labeled: labeled || null, since, until, begun: day === null ? null : true };
}

export async function show(root) {
  const state = { chosen: chosenIn(new URLSearchParams(location.search)), passages: [], next: null, total: 0, lastId: 0, fresh: new Set(), words: [], names: {}, known: 0, request: 0, closed: false };
  const rows = new Map(); // by id: { row, control, show }
  const parts = frame();
  let opened = null; // the details that are open: { passage, control }
  let opener = null;
  replace(root, parts.page);

  /** Those of the model; without one, those of the passages that are there. */
  const classes = () => {
    const own = state.words.filter((one) => one.kind === "class").map((one) => one.word);
    return own.length ? own : Object.keys(state.counts?.names ?? {});
  };
  const isFiltered = () => FILTERS.some((name) => state.chosen[name] !== "" && state.chosen[name] !== null);

  function remember({ push = false } = {}) {
    const query = new URLSearchParams();
    for (const name of [...FILTERS, "passage"]) {
      const value = state.chosen[name];
      if (value !== "" && value !== null) query.set(name, value);
    }
    const path = query.size ? `/history?${query}` : "/history";
    if (push) history.pushState({}, "", path);
    else history.replaceState({}, "", path);
  }

  async function begin() {
    try {
      const [words, labels, counts] = await Promise.all([get("/labels/words"), get("/labels", { most: 1 }), get("/passages/calendar", { days: DAYS, zone: ZONE })]);
      if (state.closed) return;
      state.words = words.words;
      state.known = labels.labels[0]?.number ?? 0;
      showCounts(counts);
      showFilters();
      await load();
      if (state.chosen.passage) await open(state.chosen.passage, { push: false });
    } catch (error) {
      if (!state.closed) replace(parts.list, failed(error, begin));
    }
  }

  async function countAgain() {
    const counts = await get("/passages/calendar", { days: DAYS, zone: ZONE });
    if (!state.closed) showCounts(counts);
  }

  function showCounts(counts) {
    state.counts = counts;
    state.names = { ...Object.fromEntries(state.words.map((one) => [one.word, one.name])), ...counts.names };
    replace(parts.night, night(counts.night, counts.now));
    showCalendar();
  }

  function showCalendar() {
    replace(parts.calendar, calendar(state.counts, { classes: classes(), chosen: state.chosen, pick }));
  }

  function night({ begin: from, end, passages, labels, first }, now) {
    const which = now < end ? "Tonight so far" : "Last night";
    const times = first.map((one) =>
      el("li", {}, el("a", { href: `/history?passage=${encodeURIComponent(one.passage)}`, onclick: (event) => openLink(event, one.passage) }, clock(one.start_time).slice(0, 5)), ` ${state.names[one.label] ?? "Somebody, no class"}`));
    return [
      el("p.history-night", {}, el("strong", {}, `${which}: ${passages ? counted(passages, "passage") : "no passages"}`),
        passages ? `: ${byClass(labels, state.names)}` : ""),
      el("p.quiet", {}, `${dayText(from)} to ${dayText(end)}, local time`),
      times.length ? el("ul.plain.row.night-times", { "aria-label": "Passages of the night" }, times, passages > first.length && el("li.quiet", {}, `and ${passages - first.length} more`)) : null,
    ];
  }

  function showFilters() {
    const labels = [...new Set([...classes(), ...Object.keys(state.names)])];
    replace(parts.label, [["", "all"], ...labels.map((one) => [one, state.names[one]]), [NO_LABEL, "without a class"]].map(([value, text]) => el("option", { value }, text)));
    parts.search.value = state.chosen.search;
    for (const name of ["label", "least", "labeled"]) parts[name].value = state.chosen[name];
    for (const name of CONTROLS) parts[name].disabled = false;
    showChosen();
  }

  function showChosen() {
    const { day, hour } = state.chosen;
    replace(parts.day, day && el("button.small", { type: "button", onclick: () => pick(null, null), "aria-label": `Show all days, not only ${named(day, hour)}` }, named(day, hour), " ✕"));
    const query = Object.entries(asked(state.chosen)).filter(([, value]) => value !== null);
    parts.csv.href = `/api/v1/passages.csv?${new URLSearchParams(query)}`;
    parts.clear.hidden = !isFiltered();
  }

  async function load({ more = false } = {}) {
    const mine = ++state.request;
    if (!more) showChosen();
    try {
      const found = await get("/passages", { ...asked(state.chosen), most: PORTION, before: more ? state.next : null });
      if (state.closed || mine !== state.request) return;
      state.passages = more ? [...state.passages, ...found.passages] : found.passages;
      [state.next, state.total] = [found.next, found.total];
      if (!more) {
        state.lastId = found.last_id;
        state.fresh.clear();
        showFresh();
      }
      showList();
      if (!more) take(live.since(found.last_id));
    } catch (error) {
      if (!state.closed && mine === state.request) replace(parts.failure, failed(error, () => load({ more })));
    }
  }

  function showList() {
    replace(parts.failure);
    parts.total.textContent = isFiltered() ? `${counted(state.total, "passage")} match` : counted(state.total, "passage");
    parts.older.hidden = state.next === null;
    for (const id of rows.keys()) if (!state.passages.some((one) => one.passage === id)) rows.delete(id);
    if (!state.passages.length) return replace(parts.list, nothing());
    const days = new Map();
    for (const one of state.passages) {
      const key = dayText(one.start_time).slice(0, 10);
      if (!days.has(key)) days.set(key, []);
      days.get(key).push(rowOf(one).row);
    }
    replace(parts.list, [...days].map(([key, own]) =>
      el("section", {}, el("h3", {}, DAY.format(new Date(`${key}T12:00`))), el("ul.plain.passage-rows", {}, own))));
  }

  function nothing() {
    if (isFiltered()) return empty("No passage matches these filters", el("button", { type: "button", onclick: clear }, "Show all passages"));
    if (state.counts?.known_since == null) return empty("Nothing was heard yet", "As soon as the source delivers sound and somebody passes, it is listed here. ", el("a", { href: "/" }, "Now"), " shows what gemmed waits for.");
    return empty("No passages yet", "The array listens, and nobody has passed. A passage appears here while it is going on; ", el("a", { href: "/" }, "Now"), " shows this moment.");
  }

  function rowOf(passage) {
    if (!rows.has(passage.passage)) rows.set(passage.passage, passageRow(passage));
    return rows.get(passage.passage);
  }

  function passageRow(passage) {
    const control = labelControl(passage, { words: choices(), known: () => state.known, changed: (labeled) => relabel(passage.passage, labeled) });
    const what = el("div.what");
    const play = el("span.play-place");
    const row = el("li", { data: { passage: passage.passage } }, play, what, control.box);
    const me = {
      row,
      control,
      show(one) {
        const cadence = one.cadence_per_minute === null ? "" : ` · ${Math.round(one.cadence_per_minute)} steps/min`;
        const unused = [...new Set(one.sensors_excluded.map((each) => each.sensor))].filter((sensor) => !one.sensors_used.includes(sensor));
        const out = unused.length ? ` · without sensor${unused.length > 1 ? "s" : ""} ${unused.join(", ")}` : "";
        replace(what,
          el("p", {}, el("a", { href: `/history?passage=${encodeURIComponent(one.passage)}`, onclick: (event) => openLink(event, one.passage), "aria-label": `${clock(one.start_time)} ${nameOf(one)}, details` }, el("span.number", {}, clock(one.start_time)), " ", verdict(one, classes())),
            one.probability !== null && el("span.number", {}, ` ${probabilityText(one.probability)}`)),
          el("p.quiet", {}, one.end === null ? el("strong", {}, "going on") : long(one.duration_seconds), cadence, out,
            one.label === null && one.reason ? ` · ${one.reason}` : "", one.sound === "partly" ? " · sound partly kept" : ""));
        const sound = `${one.end === null}${one.sound}`;
        if (play.dataset.sound !== sound) replace(play, one.end === null ? el("span.quiet", {}, "…") : listen(one));
        play.dataset.sound = sound;
      },
    };
    me.show(passage);
    return me;
  }

  const choices = () => state.words.filter((one) => one.key !== null);

  /** A label that was given in the list shows in the details, and the other way round. */
  function relabel(id, labeled) {
    const own = state.passages.find((one) => one.passage === id);
    if (own) {
      own.labeled = labeled;
      rows.get(id)?.show(own);
    }
  }

  function openLink(event, id) {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    opener = event.currentTarget;
    open(id);
  }

  async function open(id, { push = true, focus = true } = {}) {
    state.chosen.passage = id;
    if (push) remember({ push: true });
    replace(parts.side, loading("the passage"));
    try {
      const found = await get(`/passages/${encodeURIComponent(id)}`);
      if (state.closed || state.chosen.passage !== id) return;
      const control = labelControl(found, { words: choices(), known: () => state.known, changed: (labeled) => { rows.get(found.passage)?.control.update(labeled); } });
      const { panel, heading } = details(found, { names: state.names, classes: classes(), control, close });
      opened = { id: found.passage, control };
      replace(parts.side, panel);
      if (focus) heading.focus();
    } catch (error) {
      if (!state.closed && state.chosen.passage === id) replace(parts.side, error.code === 404 ? gone(id) : failed(error, () => open(id, { push: false })));
    }
  }

  const gone = (id) => el("section.card", {}, empty("This passage is not there", `There is no passage ${id} in this array's journal; it may have been removed to make room. `, el("button", { type: "button", onclick: close }, "Close")));

  function close() {
    state.chosen.passage = null;
    opened = null;
    remember({ push: true });
    replace(parts.side);
    (opener?.isConnected ? opener : parts.search).focus();
  }

  function filter(change, { push = true } = {}) {
    Object.assign(state.chosen, change);
    remember({ push });
    showCalendar();
    load();
  }
  function pick(day, hour) {
    filter({ day, hour });
    parts.calendar.querySelector("button[tabindex='0']")?.focus();
  }
  function clear() {
    Object.assign(state.chosen, { search: "", label: "", least: "", labeled: "", day: null, hour: null });
    showFilters();
    filter({});
    parts.search.focus();
  }

  /** What happened since the list was loaded. Rows change in place; new ones wait for a click. */
  async function take(events) {
    const fresh = events.filter((event) => event.id > state.lastId && CHANGES.has(event.type));
    if (!fresh.length) return;
    state.lastId = fresh.at(-1).id;
    const changed = new Set();
    for (const event of fresh) {
      if (event.type === "label_given") {
        state.known = Math.max(state.known, event.number ?? 0);
        for (const one of state.passages) if (overlaps(one, event)) changed.add(one.passage);
      } else {
        const own = state.passages.find((one) => one.parts.some((part) => part.passage === event.passage));
        if (own) changed.add(own.passage);
        else if (event.type !== "passage_updated") state.fresh.add(event.passage);
      }
    }
    showFresh();
    await Promise.all([...changed].map(refresh));
  }

  const overlaps = (passage, event) => passage.parts.some((part) =>
    part.recording === event.recording && event.start_sample < part.stop_sample && event.stop_sample > part.start_sample);

  const asking = new Map(); // by id: the number of the last request; answers to earlier ones may be older
  async function refresh(id) {
    const mine = (asking.get(id) ?? 0) + 1;
    asking.set(id, mine);
    const found = await get(`/passages/${encodeURIComponent(id)}`).catch(() => null);
    const place = state.passages.findIndex((one) => one.passage === id);
    if (!found || state.closed || place < 0 || asking.get(id) !== mine) return;
    state.passages[place] = found;
    rows.get(id)?.show(found);
    rows.get(id)?.control.update(found.labeled);
    if (opened?.id === id) opened.control.update(found.labeled);
  }

  function showFresh() {
    parts.fresh.hidden = !state.fresh.size;
    // Whether they match the filters is known only to the server.
    parts.fresh.textContent = isFiltered() ? "There are new passages: update" : `Show ${counted(state.fresh.size, "new passage")}`;
  }

  function answered(report) {
    if (report.answer?.number) state.known = Math.max(state.known, report.answer.number);
    for (const { control } of rows.values()) control.answered(report);
    opened?.control.answered(report);
  }

  let typing = null;
  parts.search.oninput = () => {
    clearTimeout(typing);
    typing = setTimeout(() => filter({ search: parts.search.value.trim() }, { push: false }), TYPING_MS);
  };
  for (const name of ["label", "least", "labeled"]) parts[name].onchange = () => filter({ [name]: parts[name].value });
  parts.form.onsubmit = (event) => event.preventDefault();
  parts.clear.onclick = clear;
  parts.older.onclick = async () => {
    const before = state.passages.length;
    await load({ more: true });
    rows.get(state.passages[before]?.passage)?.row.querySelector("a")?.focus();
  };
  parts.fresh.onclick = async () => {
    await Promise.all([load(), countAgain().catch(() => {})]);
    parts.list.querySelector("a")?.focus();
  };
  parts.days.onclick = () => {
    const all = parts.calendar.classList.toggle("all");
    parts.days.setAttribute("aria-expanded", String(all));
    parts.days.textContent = all ? "Show 7 days" : `Show ${DAYS} days`;
  };
  parts.page.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && parts.side.contains(event.target)) close();
  });

  let connected = true;
  const stops = [
    live.on("events", take),
    live.on("connection", (now) => {
      // Events that came meanwhile may be lost to this page.
      if (now === "live" && !connected) reconnected();
      connected = now === "live";
    }),
    outbox.on(answered),
  ];
  async function reconnected() {
    const found = await get("/passages", { ...asked(state.chosen), most: 1 }).catch(() => null);
    if (!found || state.closed) return;
    for (let n = state.total; n < found.total; n += 1) state.fresh.add(`missed ${n}`);
    showFresh();
  }
  await begin();
  return () => {
    state.closed = true;
    clearTimeout(typing);
    stops.forEach((stop) => stop());
  };
}

/** What stays while its content changes. Filters wait for the classes, and would lose what is typed before. */
function frame() {
  const select = (options) => el("select", {}, options.map(([value, text]) => el("option", { value }, text)));
  const parts = {
    night: el("div", { role: "status" }),
    search: el("input", { type: "search", placeholder: "class, id", maxLength: 200, autocomplete: "off" }),
    label: select([["", "all"]]), least: select(LEAST), labeled: select(LABELED),
    day: el("span"), clear: el("button.small", { type: "button", hidden: true }, "Clear filters"),
    csv: el("a.button", { href: "/api/v1/passages.csv", download: "" }, "Export CSV"),
    total: el("p.quiet", { role: "status" }),
    fresh: el("button.primary.fresh", { type: "button", hidden: true }),
    list: el("div", {}, loading("the passages")), failure: el("div"),
    older: el("button", { type: "button", hidden: true }, "Older"),
    side: el("div.history-side"),
    calendar: el("div.scroll.calendar-place"),
    days: el("button.small.calendar-days", { type: "button", "aria-expanded": "false" }, `Show ${DAYS} days`),
  };
  for (const name of CONTROLS) parts[name].disabled = true;
  const field = (name, control) => el("label.field", {}, name, control);
  parts.form = el("form.row.history-filters", { role: "search", "aria-label": "Filter the passages" },
    field("Search", parts.search), field("Class", parts.label), field("Probability at least", parts.least), field("Labels", parts.labeled), parts.day, parts.clear);
  parts.page = el("div.history", {},
    el("div.head", {}, el("h1", {}, "History"), parts.csv),
    el("div.card", {}, parts.night),
    el("div.history-board", {},
      el("div.history-aside", {}, parts.side, el("section.card", { "aria-label": "Calendar" }, parts.calendar, parts.days)),
      el("div.stack.history-main", {}, parts.form, el("div.row.apart", {}, parts.total, parts.fresh), parts.failure, parts.list, parts.older)));
  return parts;
}
