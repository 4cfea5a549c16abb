// The sound of all sensors at once: fetched ahead, made equally loud, played together or one alone.

import { fetched, get, soundAddress } from "./api.js";

const LOUD_RMS = 0.12;
const PEAK = 0.9;
const MOST_GAIN = 400;
const MOST_KEPT = 6;
const kept = new Map();

const address = (item) => soundAddress(item.recording, item.shown_start_sample, item.shown_stop_sample);

/** The spectrogram and the sound of an item; asked for early, it is there when it is needed. */
export function soundOf(item) {
  const key = address(item);
  if (!kept.has(key)) {
    const found = Promise.all([pictureOf(item), decoded(key)]).then(([spectrogram, buffer]) => ({ spectrogram, buffer, gains: gains(buffer) }));
    // What failed may work the next time.
    found.catch(() => kept.delete(key));
    kept.set(key, found);
    while (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  }
  return kept.get(key);
}

const pictureOf = (item) =>
  get(`/spectrogram/${encodeURIComponent(item.recording)}`, { start: item.shown_start_sample, stop: item.shown_stop_sample });

async function decoded(key) {
  const answer = await fetched(key);
  return new OfflineAudioContext(1, 1, 48000).decodeAudioData(await answer.arrayBuffer());
}

/** By what each sensor is made as loud as the others; one that hears nothing stays silent. */
function gains(buffer) {
  return Array.from({ length: buffer.numberOfChannels }, (_, channel) => {
    const samples = buffer.getChannelData(channel);
    let power = 0;
    let peak = 0;
    for (const one of samples) {
      power += one * one;
      peak = Math.max(peak, Math.abs(one));
    }
    return peak === 0 ? 0 : Math.min(LOUD_RMS / Math.sqrt(power / samples.length), PEAK / peak, MOST_GAIN);
  });
}

let context = null;

/** Plays one item; `moved(seconds)` while it does, `changed(playing)` when it begins or ends. */
export function player({ moved, changed }) {
  let loaded = null;
  let source = null;
  let faders = [];
  let solo = null;
  let speed = 1;
  let offset = 0;
  let begunAt = 0;
  let request = 0;
  let wanted = false;

  const position = () => (source ? Math.min(offset + (context.currentTime - begunAt) * speed, loaded.buffer.duration) : offset);

  function fade() {
    const all = loaded?.gains.filter(Boolean).length || 1;
    faders.forEach((fader, n) => { fader.gain.value = solo === null ? loaded.gains[n] / Math.sqrt(all) : solo === n ? loaded.gains[n] : 0; });
  }

  function silence() {
    cancelAnimationFrame(request);
    if (!source) return;
    offset = position();
    source.onended = null;
    source.stop();
    source.disconnect();
    source = null;
    changed(false);
  }

  function follow() {
    moved(position());
    request = requestAnimationFrame(follow);
  }

  function begin() {
    if (!loaded || source) return;
    if (offset >= loaded.buffer.duration - 0.05) offset = 0;
    const n = loaded.buffer.numberOfChannels;
    source = new AudioBufferSourceNode(context, { buffer: loaded.buffer, playbackRate: speed });
    const splitter = new ChannelSplitterNode(context, { numberOfOutputs: n });
    // Several at once must not be louder than the loudspeaker can be.
    const limiter = new DynamicsCompressorNode(context, { threshold: -6, ratio: 20, attack: 0.002 });
    source.connect(splitter);
    faders = Array.from({ length: n }, (_, channel) => {
      const fader = new GainNode(context, { gain: 0 });
      splitter.connect(fader, channel);
      fader.connect(limiter);
      return fader;
    });
    limiter.connect(context.destination);
    fade();
    begunAt = context.currentTime;
    source.onended = () => { silence(); offset = 0; moved(0); };
    source.start(0, offset);
    changed(true);
    follow();
  }

  const me = {
    get playing() { return source !== null; },
    get position() { return position(); },
    get solo() { return solo; },
    load(next, at = 0) {
      silence();
      wanted = false;
      [loaded, offset, solo] = [next, at, null];
      moved(offset);
    },
    unload() { silence(); wanted = false; loaded = null; },
    async play() {
      if (!loaded) return;
      context ??= new AudioContext();
      wanted = true;
      // Browsers let a page sound only after somebody has touched it; until then this waits.
      await context.resume();
      if (wanted) begin();
    },
    pause() { wanted = false; silence(); },
    toggle() { return source ? me.pause() : me.play(); },
    seek(seconds) {
      const goes = source !== null;
      silence();
      offset = Math.max(0, Math.min(seconds, loaded?.buffer.duration ?? 0));
      moved(offset);
      if (goes) begin();
    },
    alone(n) { solo = solo === n ? null : n; fade(); },
    faster(next) {
      const goes = source !== null;
      silence();
      speed = next;
      if (goes) begin();
    },
    close() { me.unload(); },
  };
  return me;
}
