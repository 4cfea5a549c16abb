// Colours of style.css where a canvas needs them as numbers.

const scheme = matchMedia("(prefers-color-scheme: dark)");
const known = new Map();
const probe = document.createElement("span");
probe.hidden = true;

/** "--good" as it is now: a text that canvas understands. */
export function colour(name) {
  if (!known.has(name)) {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(${name})`;
    known.set(name, getComputedStyle(probe).color);
  }
  return known.get(name);
}

/** Call again whenever light becomes dark or the other way round. Returns how to stop. */
export function onScheme(listener) {
  scheme.addEventListener("change", listener);
  return () => scheme.removeEventListener("change", listener);
}
// Before anybody else hears of it.
scheme.addEventListener("change", () => { known.clear(); map = null; });

let map = null;

/** Red, green and blue for each of the 256 loudnesses. */
export function soundMap() {
  if (map) return map;
  const stops = [0, 1, 2, 3, 4].map((n) => colour(`--sound-${n}`).match(/[\d.]+/g).slice(0, 3).map(Number));
  map = new Uint8ClampedArray(256 * 3);
  for (let loudness = 0; loudness < 256; loudness++) {
    const place = (loudness / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    for (let part = 0; part < 3; part++) {
      map[3 * loudness + part] = stops[low][part] + (place - low) * (stops[low + 1][part] - stops[low][part]);
    }
  }
  return map;
}
