// A note on every page while the array is a simulated one. It can be made small, but not hidden.

import * as live from "./live.js";

const NAME = "gemmed-simulated-note";
const note = document.querySelector("#simulated");
const badge = document.querySelector("#simulated-badge");
let simulated = false;
let small = false;

try {
  small = localStorage.getItem(NAME) === "small";
} catch { /* storage is forbidden: the note is large on every visit */ }

function show() {
  badge.hidden = !simulated;
  note.hidden = !simulated || small;
  badge.setAttribute("aria-expanded", String(!note.hidden));
}

function become(next) {
  small = next;
  try {
    localStorage.setItem(NAME, small ? "small" : "large");
  } catch { /* see above */ }
  show();
}

badge.addEventListener("click", () => become(!small));
note.querySelector("button").addEventListener("click", () => {
  become(true);
  badge.focus();
});
live.on("status", (status) => {
  if (status.simulated === simulated) return;
  simulated = status.simulated;
  show();
});
