import { el, replace } from "../dom.js";
import * as live from "../live.js";

export const spectrogram = true;

export function show(root) {
  const told = el("pre");
  replace(root, el("h1", {}, "Now"), told);
  return live.on("status", (status) => { told.textContent = JSON.stringify(status, null, 1); });
}
