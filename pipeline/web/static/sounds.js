// Sound to be heard and seen: a button that plays, a picture of frequencies over time, and both together.

import { fetched, get, soundAddress } from "./api.js";
import { onScheme, soundMap } from "./colours.js";
import { el, replace, svg } from "./dom.js";

const COLUMNS_PER_SECOND = 20;
const LOWEST_HZ = 50;
const MARKS_HZ = [100, 300, 1000, 3000, 10000, 30000];
const FEWEST_MS = 1000;

// One sound at a time: a field is confusing enough.
const audio = new Audio();
let playing = null;
audio.addEventListener("ended", () => stop());
audio.addEventListener("timeupdate", () => playing?.progress?.(audio.currentTime, audio.duration));

const icon = (path) => svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: path, fill: "currentColor" }));
const PLAY = "M6 4l14 8-14 8z";
const STOP = "M6 6h12v12H6z";

/** Silence, wherever it comes from. */
export function stop() {
  const before = playing;
  playing = null;
  audio.pause();
  const source = audio.getAttribute("src");
  if (source) {
    // It may still be loading: what is taken away under its hands is an error.
    audio.removeAttribute("src");
    audio.load();
    URL.revokeObjectURL(source);
  }
  before?.ended();
}

/** A button that plays what is at an address, and stops it again. `name` says what; `progress(seconds, of)` while it plays. */
export function playButton(address, name, { progress = null } = {}) {
  const button = el("button.play", { type: "button", "aria-label": `Play ${name}`, title: `Play ${name}`, "aria-pressed": "false" }, icon(PLAY));
  const told = el("span.told", { role: "status" });
  const show = (on) => {
    replace(button, icon(on ? STOP : PLAY));
    button.setAttribute("aria-pressed", String(on));
    button.setAttribute("aria-label", `${on ? "Stop" : "Play"} ${name}`);
  };
  const me = { ended: () => { show(false); progress?.(null, null); }, progress };
  button.addEventListener("click", async () => {
    if (playing === me) return stop();
    stop();
    playing = me;
    show(true);
    told.textContent = "";
    try {
      const source = URL.createObjectURL(await (await fetched(address)).blob());
      if (playing !== me) return URL.revokeObjectURL(source);
      audio.src = source;
      await audio.play();
    } catch (error) {
      if (playing === me) stop();
      // Somebody who stops at once interrupts the play; that is no trouble.
      if (error.name !== "AbortError") told.textContent = error.message;
    }
  });
  return el("span.row", {}, button, told);
}

const bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

/** Frequencies of the bands of a picture, as the server makes them. */
function frequencies(rateHz, n = 64) {
  const ratio = rateHz / 2 / LOWEST_HZ;
  return Array.from({ length: n }, (_, band) => LOWEST_HZ * ratio ** ((band + 1) / (n + 1)));
}

/** Marks of the frequency axis, where they belong. */
function axis(hz) {
  const n = hz.length;
  const place = (f) => (n - 0.5 - (Math.log(f / hz[0]) / Math.log(hz[n - 1] / hz[0])) * (n - 1)) / n;
  return MARKS_HZ.filter((f) => f > hz[0] * 1.3 && f < hz[n - 1] / 1.3).map((f) => {
    const mark = el("span.frequency", { "aria-hidden": "true" }, f < 1000 ? `${f} Hz` : `${f / 1000} kHz`);
    mark.style.top = `${100 * place(f)}%`;
    return mark;
  });
}

/** Columns (n, bands) as pixels, low frequencies at the bottom; nothing is drawn of those that are not known. */
function image(context, columns, bands, known = null) {
  const n = columns.length / bands;
  const made = context.createImageData(n, bands);
  const map = soundMap();
  for (let column = 0; column < n; column++) {
    if (known && !known[column]) continue;
    for (let band = 0; band < bands; band++) {
      const place = 4 * ((bands - 1 - band) * n + column);
      made.data.set(map.subarray(3 * columns[column * bands + band], 3 * columns[column * bands + band] + 3), place);
      made.data[place + 3] = 255;
    }
  }
  return made;
}

/** The picture of one sensor of an answer of /spectrogram. `name` says what is to be seen. */
export function picture(spectrogram, sensor, name) {
  const bands = spectrogram.frequencies_hz.length;
  const row = Math.max(0, spectrogram.sensors.indexOf(sensor));
  const all = bytes(spectrogram.data);
  const own = all.subarray(row * spectrogram.n_columns * bands, (row + 1) * spectrogram.n_columns * bands);
  const canvas = el("canvas", { width: Math.max(1, spectrogram.n_columns), height: bands, role: "img", "aria-label": `Spectrogram of ${name}` });
  const context = canvas.getContext("2d");
  const draw = () => spectrogram.n_columns && context.putImageData(image(context, own, bands), 0, 0);
  draw();
  // A picture that nobody sees any more need not follow.
  const forget = onScheme(() => (canvas.isConnected ? draw() : forget()));
  return el("div.picture", {}, canvas, axis(spectrogram.frequencies_hz));
}

/** Sound at an address with its picture, which `ask` fetches as /spectrogram answers it, and a button. */
export function figure(address, ask, sensor, name, caption = name) {
  const box = el("div.picture", {}, el("p.missing", {}, "Loading …"));
  const line = el("div.head-line", { hidden: true });
  const progress = (at, of) => {
    line.hidden = at === null;
    if (at !== null && of) line.style.left = `${(100 * at) / of}%`;
  };
  ask().then(
    (found) => { const made = picture(found, sensor, name); made.append(line); box.replaceWith(made); },
    (error) => replace(box, el("p.missing", { role: "status" }, error.message)),
  );
  return el("figure.sound", {}, el("figcaption", {}, playButton(address, name, { progress }), caption), box);
}

/** The same for a stretch of a recording; `sound` has recording, start, stop (samples) and sensor. */
export function soundFigure(sound, name, { caption = name, pictureOf = null } = {}) {
  const { recording, start, stop, sensor } = sound;
  const ask = () => pictureOf ?? get(`/spectrogram/${encodeURIComponent(recording)}`, { start, stop, sensor });
  return figure(soundAddress(recording, start, stop, sensor), ask, sensor, name, caption);
}

/** A picture that goes on: `fill` draws the sound that is kept, `add` what the stream brings of one sensor. */
export function scrolling({ seconds = 20, rateHz, name }) {
  const bands = 64;
  const width = seconds * COLUMNS_PER_SECOND;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const canvas = el("canvas", { width, height: bands, role: "img", "aria-label": `Live spectrogram of ${name}, the last ${seconds} seconds` });
  const context = canvas.getContext("2d");
  const history = new Uint8Array(width * bands);
  const known = new Uint8Array(width);
  let held = []; // what the stream brings before the kept sound is there
  let waiting = [];
  let recording = null;
  let expected = null;
  let paused = false;
  let drawnAt = 0;
  let request = 0;

  // Missing sound is not silence: the background shows through.
  context.globalCompositeOperation = "copy";
  const redraw = () => context.putImageData(image(context, history, bands, known), 0, 0);
  function shift(n) {
    const fresh = waiting.splice(0, n);
    const first = width - fresh.length;
    history.copyWithin(0, fresh.length * bands);
    known.copyWithin(0, fresh.length);
    fresh.forEach((column, place) => {
      known[first + place] = column ? 1 : 0;
      if (column) history.set(column, (first + place) * bands);
    });
    context.drawImage(canvas, -fresh.length, 0);
    context.putImageData(image(context, history.subarray(first * bands), bands, known.subarray(first)), first, 0);
  }
  function step(now) {
    request = requestAnimationFrame(step);
    if (paused || !waiting.length) { drawnAt = now; return; }
    if (calm.matches) {
      if (now - drawnAt >= FEWEST_MS) { shift(waiting.length); drawnAt = now; }
      return;
    }
    // Twice as fast while much is waiting, so that the picture keeps up with the sound.
    const pace = COLUMNS_PER_SECOND * (waiting.length > 1.5 * COLUMNS_PER_SECOND ? 2 : 1);
    const due = Math.floor(((now - drawnAt) / 1000) * pace);
    if (due) { shift(due); drawnAt += (1000 * due) / pace; }
  }
  redraw();
  request = requestAnimationFrame(step);
  const forget = onScheme(redraw);

  /** Columns that follow each other, null where there is no sound. Columns that are there already are skipped. */
  function queue(columns, told) {
    const same = told.recording === recording;
    const ahead = same ? Math.round((told.start_sample - expected) / told.hop) : 0;
    // How much time lies between two recordings is not known here.
    const blank = same ? Math.max(0, ahead) : expected === null ? 0 : COLUMNS_PER_SECOND;
    const fresh = columns.slice(Math.max(0, -ahead));
    waiting = [...waiting, ...Array(Math.min(width, blank)).fill(null), ...fresh].slice(-width);
    if (same && !fresh.length) return;
    recording = told.recording;
    expected = told.start_sample + columns.length * told.hop;
  }

  return {
    box: el("div.picture", {}, canvas, axis(frequencies(rateHz, bands))),
    /** Draw the kept sound of one sensor at once, from columns one after the other; null if none is kept. */
    fill(columns, told) {
      if (!held) return;
      if (columns) {
        queue(columnsIn(columns, bands).map((column, n) => (isMissing(told, n) ? null : column)), told);
        shift(waiting.length);
      }
      for (const [later, when] of held.splice(0)) queue(later, when);
      held = null;
    },
    /** Take one sensor's columns of a message of the stream. */
    add(columns, told) {
      const found = columnsIn(columns, bands);
      if (held) held.push([found, told]);
      else queue(found, told);
    },
    pause(on) { paused = on; },
    close() { cancelAnimationFrame(request); forget(); },
  };
}

const columnsIn = (columns, bands) => Array.from({ length: columns.length / bands }, (_, n) => columns.subarray(n * bands, (n + 1) * bands));

/** Whether sound is missing in a column of an answer of /spectrogram; a column is two hops long. */
function isMissing({ start_sample: start, hop, missing }, column) {
  const first = start + column * hop;
  return missing.some(([from, until]) => from < first + 2 * hop && until > first);
}

/** Columns of a message of the stream, or of /spectrogram, one array for each sensor. */
export function columnsOf(told, nSensors) {
  const all = bytes(told.data);
  const each = all.length / nSensors;
  return Array.from({ length: nSensors }, (_, sensor) => all.subarray(sensor * each, (sensor + 1) * each));
}
