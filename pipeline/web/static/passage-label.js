// The control that labels a passage: all classes, nobody, unknown and "not sure", with undo.

import { el, replace } from "./dom.js";
import * as outbox from "./outbox.js";
import { mayOperate } from "./session.js";

/**
 * A control for one passage. `words` are those of /labels/words; `known` returns the number of the newest label that
 * the page has seen; `changed(labeled)` is called with what counts now: { label, name, who } or null.
 */
export function labelControl(passage, { words, known, changed = () => {} }) {
  const said = el("span.said", { role: "status" });
  const undo = el("button.small", { type: "button", hidden: true, onclick: takeBack }, "Undo");
  const open = el("button.small.operate", { type: "button", "aria-expanded": "false", onclick: () => unfold(choices.hidden) }, "Label");
  const choices = el("div.choices", { hidden: true, role: "group", "aria-label": "Labels" },
    words.map((one) => el("button.small", { type: "button", data: { word: one.word }, onclick: () => give(one) }, one.name)));
  const problem = el("span.told", { role: "status" });
  const box = el("div.label-control", { onkeydown: (event) => {
    if (event.key !== "Escape" || choices.hidden) return;
    event.stopPropagation();
    unfold(false);
    open.focus();
  } }, el("div.row", {}, said, undo, open), choices, problem);
  let given = null; // the key of the label that was given here, until it is taken back
  let before = passage.labeled;

  function unfold(on) {
    choices.hidden = !on;
    open.setAttribute("aria-expanded", String(on));
    if (on) choices.querySelector("button")?.focus();
  }

  function give(word) {
    if (!mayOperate()) return;
    if (given) outbox.takeBack(given);
    given = outbox.send({ label: word.word, passage: passage.passage, known: known(), new: false, why: "" }, null);
    problem.textContent = "";
    unfold(false);
    show({ label: word.word, name: word.name, who: "you" });
    undo.focus();
  }

  function takeBack() {
    outbox.takeBack(given);
    given = null;
    show(before);
    open.focus();
  }

  function show(labeled) {
    replace(said, labeled && `labeled ${labeled.name}${labeled.who === "you" ? "" : ` by ${labeled.who}`}`);
    open.textContent = labeled ? "Change" : "Label";
    open.setAttribute("aria-label", `${labeled ? "Change the label of" : "Label"} this passage`);
    undo.hidden = !given;
    changed(labeled);
  }

  replace(said, before && `labeled ${before.name} by ${before.who}`);
  open.textContent = before ? "Change" : "Label";
  return {
    box,
    /** Whether a label of somebody else came meanwhile. */
    update(labeled) {
      if (given) return; // Undo returns to what counted before
      before = labeled;
      show(labeled);
    },
    /** What the outbox reports. */
    answered({ refused, error }) {
      if (!refused || refused.key !== given) return;
      given = null;
      show(before);
      problem.textContent = `The label was not stored: ${error.message}`;
    },
  };
}
