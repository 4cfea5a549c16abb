// Which models there are, who decides, what each was learned from, and what training refused.

import { get, post } from "../api.js";
import { day, el, empty, failed, inARow, loading, percent, replace, svg, time, words } from "../dom.js";
import * as live from "../live.js";
import { playButton } from "../sounds.js";
import { shape } from "../states.js";

const CHANGES = new Set([
  "model_changed", "model_promoted", "promotion_asked", "model_rolled_back", "model_unusable", "challenger_refused",
  "retraining_started", "retraining_finished", "retraining_failed", "shadow_started", "shadow_finished", "run_started",
]);
const STATUS = { champion: "good", challenger: "degraded", refused: "bad", retired: "off", unusable: "bad" };
const ORIGINS = {
  starter: "the first model, from what came with gemmed or the settings", unlabelled: "learned without labels",
  retrained: "learned from what was labelled here", given: "given by the settings",
};
const PER_PAGE = 10;
const MOST_ROUNDS = 40;

const rate = (told) => (told ? `${(100 * told.value).toFixed(1)} % (${(100 * told.low).toFixed(1)} to ${(100 * told.high).toFixed(1)})` : "–");
const status = (one) => el("span", { class: `badge ${STATUS[one.status] ?? "unknown"}` }, shape(STATUS[one.status]), one.status);
const table = (caption, titles, rows) =>
  el("div.scroll", { tabIndex: 0, role: "region", "aria-label": caption }, el("table", {}, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, titles.map((title) => el("th", { scope: "col" }, title)))), el("tbody", {}, rows)));

export async function show(root) {
  const chosen = new URLSearchParams(location.search).get("model");
  const state = { all: null, name: chosen, status: null, told: "" };
  const parts = {
    deciding: el("div.card.deciding"), list: el("div.card"), curve: el("div.card", { hidden: true }), details: el("div.stack"), said: el("p.note", { role: "status", hidden: true }),
  };
  replace(root, el("h1", {}, "Models"), loading("the models"));

  async function load() {
    try {
      state.all = await get("/models");
    } catch (error) {
      replace(root, el("h1", {}, "Models"), failed(error, load));
      return;
    }
    // Whoever has left meanwhile would find the address of this page above another one.
    if (!root.isConnected) return;
    if (!parts.list.isConnected) replace(root, el("h1", {}, "Models"), el("div.stack.models", {}, parts.said, parts.deciding, parts.list, parts.details, parts.curve));
    render();
    const known = state.all.models.some((one) => one.name === state.name);
    if (!known) state.name = state.all.champion ?? state.all.models[0]?.name ?? null;
    if (state.name) choose(state.name);
    else parts.details.replaceChildren();
  }

  function render() {
    const { all } = state;
    replace(parts.deciding, deciding(all, state.status, { promote, rollback }));
    parts.list.hidden = !all.models.length;
    replace(parts.list, listed(all, state.name, choose));
    parts.curve.hidden = all.models.length < 2;
    replace(parts.curve, trustCurve(all));
  }

  let asked = 0;
  async function choose(name) {
    const mine = ++asked;
    const another = name !== state.name || !parts.details.childElementCount;
    state.name = name;
    history.replaceState({}, "", `/models?model=${encodeURIComponent(name)}`);
    replace(parts.list, listed(state.all, name, choose));
    if (another) replace(parts.details, loading(`model ${name}`));
    try {
      const found = await get(`/models/${encodeURIComponent(name)}`);
      if (mine === asked) replace(parts.details, described(found, state.all, { promote }));
    } catch (error) {
      if (mine === asked) replace(parts.details, failed(error, () => choose(name)));
    }
  }

  /** What was done is told at once; that it took effect is told by the daemon. */
  async function ask(title, what, path) {
    const why = await reason(title, what);
    if (why === null) return;
    try {
      const done = await post(path, { why });
      say(`${done.name} is champion; the daemon takes it up within a second.`);
      await load();
    } catch (error) {
      say(error.message, true);
    }
  }
  const promote = (name) => ask(`Let ${name} decide?`,
    [`From the next segment on ${name} decides instead of ${state.all.champion ?? "nobody"}.`, "Sensors' states and physical faults go on; what the old model found strange is judged anew. Nothing is lost: roll back at any time."],
    `/models/${encodeURIComponent(name)}/promote`);
  const rollback = () => ask(`Roll back to ${state.all.before}?`,
    [`${state.all.before}, which decided before, decides again from the next segment on; ${state.all.champion} retires.`, "Promote it again whenever you like."], "/models/rollback");
  function say(text, bad = false) {
    parts.said.hidden = false;
    parts.said.classList.toggle("bad", bad);
    parts.said.textContent = text;
  }

  let waiting = null;
  const stops = [
    live.on("events", (events) => {
      const told = events.findLast((event) => CHANGES.has(event.type));
      if (!told) return;
      if (told.type === "model_changed" && told.model) say(`Model ${told.model} decides now.`);
      clearTimeout(waiting);
      waiting = setTimeout(load, 200);
    }),
    live.on("status", (told) => {
      const before = state.status;
      state.status = told;
      if (!state.all || (before && before.model === told.model && before.learning === told.learning)) return;
      replace(parts.deciding, deciding({ ...state.all, deciding: told.model, learning: told.learning }, told, { promote, rollback }));
    }),
  ];
  await load();
  return () => {
    stops.forEach((stop) => stop());
    clearTimeout(waiting);
    document.querySelector("dialog.reason")?.remove();
  };
}

/** Who decides, really; and what is under way. */
function deciding(all, told, { rollback }) {
  const name = told ? told.model : all.deciding;
  const learning = told ? told.learning : all.learning;
  if (!all.models.length) return empty("There is no model yet", learning
    ? "The first one is being learned now; until it is there, the states of the sensors are known and nothing is decided. It appears here by itself."
    : "The first one is learned by itself, from the recordings in the settings (training.recordings) or from the first minutes of sound. Until then the states of the sensors are known and nothing is decided.");
  const behind = all.champion && name !== all.champion;
  return [
    el("div.row.apart", {},
      el("div", {}, el("h2", {}, "Who decides"),
        el("p.big", { data: { model: name ?? "" } }, name ? ["Model ", el("strong", {}, name)] : "Nobody: the daemon does not run, or has no model."),
        behind && name && el("p.quiet", {}, `${all.champion} is champion; the daemon takes it up within a second.`)),
      el("button.danger.operate", { type: "button", disabled: !all.before, title: all.before ? `Back to ${all.before}` : "No champion came before this one", onclick: rollback }, all.before ? `Roll back to ${all.before}` : "Roll back")),
    el("p", {}, el("span.quiet", {}, "Learning: "), learning ? `${learning}; it appears here when it is done.` : "nothing is under way; new labels, drift or the interval start it (see Settings, training)."),
  ];
}

function listed(all, name, choose) {
  return table("Models, the newest first; accuracy on passages that were left out", ["Model", "Is", "Since", "From", "After", "Passages", "Accuracy", "Why"],
    all.models.map((one) => el("tr", { class: one.name === name ? "chosen" : null },
      el("th", { scope: "row" }, el("button.link", { type: "button", "aria-pressed": String(one.name === name), onclick: () => choose(one.name) }, one.name)),
      el("td", {}, status(one)), el("td", {}, time(one.since, day)), el("td", { title: ORIGINS[one.origin] }, one.origin),
      el("td", {}, one.parent ?? "–"), el("td.number", {}, String(one.passages)), el("td.number", {}, rate(one.accuracy)), el("td", {}, one.why))));
}

function described(one, all, { promote }) {
  const others = all.models.filter((other) => other.name !== one.name && other.stored);
  return [
    el("section.card", {},
      el("div.row.apart", {}, el("h2", {}, `Model ${one.name}`),
        one.status !== "champion" && el("button.primary.operate", { type: "button", disabled: !one.stored, title: one.stored ? null : "Its files were removed (training.keep_models)", onclick: () => promote(one.name) }, "Let it decide")),
      el("dl.facts", {}, [
        ["is", [status(one), " since ", time(one.since, day), `: ${one.why}`]],
        ["learned", [time(one.learned, day), `, ${ORIGINS[one.origin] ?? one.origin}${one.parent ? `, after ${one.parent}` : ""}`]],
        ["tells apart", inARow(one.classes.map(words))],
        ["from", `${one.segments} segments of ${one.passages} passages`],
        ["accuracy", rate(one.accuracy)],
        ["labels", `${percent(one.wrong_labels)} seem wrong${one.doubted.length ? `, in ${one.doubted.slice(0, 5).join(", ")}${one.doubted.length > 5 ? ` and ${one.doubted.length - 5} more` : ""}` : ""}`],
      ].map(([title, value]) => [el("dt", {}, title), el("dd", {}, value)]))),
    gate(one),
    el("section.card", {}, el("h2", {}, "What each sensor did not deliver"), contamination(one)),
    refused(one),
    others.length ? comparison(one, others) : null,
  ];
}

/** Each criterion with a sign, a word and its numbers. */
function gate(one) {
  const verdict = one.passed === null ? "It never stood before the gate: there was nothing that it could be worse than, or somebody gave it." : one.passed ? "It passed." : "It did not pass.";
  const signs = { true: ["good", "passed"], false: ["bad", "not passed"], null: ["unknown", "not applicable"] };
  return el("section.card", {}, el("h2", {}, "The gate"), el("p", {}, verdict),
    one.criteria.length ? el("ul.plain.criteria", {}, one.criteria.map((found) => {
      const [sign, word] = signs[found.passed];
      return el("li", {}, el("span", { class: `badge ${sign}` }, shape(sign), word), el("div", {}, el("strong", {}, found.title), el("p.quiet", {}, found.told)));
    })) : el("ul", {}, one.reasons.map((text) => el("li", {}, text))),
    one.shadow && el("p", {}, `Shadow run: ${one.shadow.passed ? "passed" : one.shadow.reasons.join("; ")}; ${one.shadow.segments} segments, ${percent(one.shadow.agreement)} the same decisions.`));
}

/** A bar for each sensor against the limit; the number stands beside it. */
function contamination(one) {
  const limit = one.most_contamination;
  const most = Math.max(limit * 1.25, ...one.contamination);
  return el("ul.plain.shares", {}, one.contamination.map((share, place) => {
    const fill = el("span", { class: share > limit ? "over" : null });
    fill.style.width = `${(100 * share) / most}%`;
    const line = el("i", { "aria-hidden": "true", title: `limit ${percent(limit)}` });
    line.style.left = `${(100 * limit) / most}%`;
    return el("li", {}, el("span", {}, `Sensor ${place + 1}`), el("div.bar", { "aria-hidden": "true" }, fill, line),
      el("span.number", {}, `${(100 * share).toFixed(1)} %, ${share > limit ? "over" : "within"} the limit of ${percent(limit)}${one.trained[place] === false ? "; it has no classifier" : ""}`));
  }));
}

/** Counts by sensor and reason; each leads to its segments, which can be listened to. */
function refused(one) {
  const section = el("section.card", {}, el("h2", {}, "What training refused to learn from"));
  if (!one.refused.length) {
    section.append(el("p", {}, "Nothing: every segment of every sensor was learned from."));
    return section;
  }
  const reasons = [...new Set(one.refused.map((found) => found.why))].sort();
  const sensors = [...new Set(one.refused.map((found) => found.sensor))].sort();
  const segments = el("div", { "aria-live": "polite" });
  const count = (sensor, why) => one.refused.find((found) => found.sensor === sensor && found.why === why)?.segments ?? 0;
  const cell = (sensor, why) => el("td", {}, count(sensor, why)
    ? el("button.link", { type: "button", "aria-label": `Sensor ${sensor}, ${why}: ${count(sensor, why)} segments`, onclick: () => listSegments(segments, one, sensor, why) }, String(count(sensor, why))) : "0");
  section.append(
    table("Segments by sensor and reason; choose a number to hear them", ["Sensor", ...reasons], sensors.map((sensor) => el("tr", {}, el("th", { scope: "row" }, `Sensor ${sensor}`), reasons.map((why) => cell(sensor, why))))),
    segments);
  return section;
}

async function listSegments(box, one, sensor, why) {
  const rows = el("tbody");
  const more = el("button", { type: "button", hidden: true }, "More");
  const trouble = el("div");
  let after = 0;
  async function load() {
    more.disabled = true;
    try {
      const page = await get(`/models/${encodeURIComponent(one.name)}/refusals`, { sensor, why, after, most: PER_PAGE });
      rows.append(...page.refusals.map(segment));
      after = page.last;
      more.hidden = !page.more;
      trouble.replaceChildren();
    } catch (error) {
      replace(trouble, failed(error, load));
    }
    more.disabled = false;
  }
  replace(box, el("h3", {}, `Sensor ${sensor}: ${why}`),
    el("div.scroll", { tabIndex: 0, role: "region", "aria-label": `Refused segments of sensor ${sensor}` }, el("table", {}, el("thead", {}, el("tr", {}, ["Recording", "First sample", "Believed", "Sound"].map((title) => el("th", { scope: "col" }, title)))), rows)),
    trouble, more);
  more.onclick = load;
  await load();
}

const segment = (found) => el("tr", {},
  el("td", {}, found.recording), el("td.number", {}, String(found.start_sample)), el("td.number", {}, percent(found.believed)),
  el("td", {}, found.sound ? playButton(found.sound, `sensor ${found.sensor} of ${found.recording}`) : el("span.quiet", {}, found.why_silent)));

/** Two models beside each other. */
function comparison(one, others) {
  const choice = el("select", { "aria-label": "Model to compare with" }, others.map((other) => el("option", { value: other.name }, `${other.name} (${other.status})`)));
  const box = el("div");
  const compare = async () => {
    replace(box, loading("the comparison"));
    try {
      const diff = await get(`/models/${encodeURIComponent(one.name)}/diff/${encodeURIComponent(choice.value)}`);
      replace(box, table("What differs is in bold", ["", ...diff.names], diff.rows.map((row) => el("tr", { class: row.same ? null : "differs" }, el("th", { scope: "row" }, row.what), row.values.map((value) => el("td", {}, value || "–"))))),
        el("ul", {}, [...diff.learned_apart, ...diff.agreement].map((text) => el("li", {}, text))));
    } catch (error) {
      replace(box, failed(error, compare));
    }
  };
  return el("section.card", {}, el("h2", {}, "Compare"), el("div.row", {}, choice, el("button", { type: "button", onclick: compare }, "Compare")), box);
}

/** Contamination of each sensor over the rounds of learning: a small chart each, all with the same height. */
function trustCurve(all) {
  const rounds = all.models.filter((one) => one.contamination.length).slice(0, MOST_ROUNDS).reverse();
  if (rounds.length < 2) return [];
  const most = Math.max(0.1, ...rounds.flatMap((one) => one.contamination));
  const [width, height] = [220, 70];
  const x = (place) => 6 + ((width - 12) * place) / (rounds.length - 1);
  const y = (share) => height - 6 - ((height - 12) * share) / most;
  const charts = rounds[0].contamination.map((_, sensor) => {
    const points = rounds.map((one, place) => [x(place), y(one.contamination[sensor] ?? 0)]);
    const [first, last] = [rounds[0].contamination[sensor], rounds.at(-1).contamination[sensor]];
    return el("figure.curve", {},
      el("figcaption", {}, `Sensor ${sensor + 1}: ${percent(first)} → ${percent(last)}`),
      svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Share that sensor ${sensor + 1} did not deliver over ${rounds.length} models: ${rounds.map((one) => percent(one.contamination[sensor])).join(", ")}` },
        svg("line", { class: "rule", x1: 0, x2: width, y1: y(0), y2: y(0) }),
        svg("polyline", { points: points.map((point) => point.join(",")).join(" ") }),
        points.map(([px, py], place) => svg("circle", { class: rounds[place].name === all.champion ? "champion" : rounds[place].status, cx: px, cy: py, r: rounds[place].name === all.champion ? 5 : 3 }, svg("title", {}, `${rounds[place].name}, ${rounds[place].status}: ${percent(rounds[place].contamination[sensor])}`)))));
  });
  return [el("h2", {}, "How much of each sensor training could not use, model by model"), el("p.quiet", {}, `The newest at the right, the champion as a large dot; all charts reach from 0 to ${percent(most)}.`), el("div.curves", {}, charts)];
}

/** A dialog that says what will happen and asks why; null if somebody thinks better of it. */
function reason(title, what) {
  return new Promise((resolve) => {
    const field = el("input", { type: "text", name: "why", required: true, maxLength: 500, autocomplete: "off" });
    const form = el("form", { method: "dialog" },
      el("h2", {}, title), what.map((text) => el("p", {}, text)),
      el("label.why", {}, "Why? It is written into the journal.", field),
      el("div.row", {}, el("button.primary", { type: "submit", value: "yes" }, "Do it"), el("button", { type: "button", onclick: () => dialog.close("") }, "Cancel")));
    const dialog = el("dialog.reason", { "aria-label": title }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" && field.value.trim() ? field.value.trim() : null);
    });
    document.body.append(dialog);
    dialog.showModal();
    field.focus();
  });
}
