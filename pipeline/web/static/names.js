// Names of labels as people see them: the rule of pipeline/core/label_names.py.

import { words } from "./dom.js";

const USUAL = new Map([["human_animal", "Human with animal"]]);

/** The name of a label: the one in the settings, else its words with a capital. */
export function shownName(label, names = {}) {
  if (Object.hasOwn(names, label)) return names[label];
  const text = words(label).trim();
  return USUAL.get(label) ?? text.charAt(0).toUpperCase() + text.slice(1);
}
