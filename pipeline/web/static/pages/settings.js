// How it is set: every value that counts, what differs from the default, and how to change it.

import { get } from "../api.js";
import { el, empty, replace } from "../dom.js";

const WHEN = {
  now: "A change counts as soon as the daemon has read the file again.",
  "next recording": "A change begins a new recording, and counts from there on.",
  restart: "A change counts when the daemon is started again.",
};

export async function show(root) {
  const found = await get("/settings");
  const search = el("input", { type: "search", id: "search", placeholder: "name or value", oninput: () => sift() });
  const only = el("input", { type: "checkbox", id: "only", onchange: () => sift() });
  const count = el("p.quiet", { role: "status" });
  const cards = found.tables.map(table);
  const nothing = empty("No setting fits", "Search for another name, or show all of them.");

  function sift() {
    const asked = search.value.trim().toLowerCase();
    let shown = 0;
    for (const card of cards) {
      const rows = [...card.querySelectorAll("tbody tr")];
      for (const row of rows) {
        row.hidden = (only.checked && !row.dataset.differs) || !row.dataset.text.includes(asked);
        shown += !row.hidden;
      }
      card.hidden = rows.every((row) => row.hidden);
    }
    nothing.hidden = shown > 0;
    count.textContent = `${shown} of ${found.tables.reduce((sum, one) => sum + one.settings.length, 0)} settings`;
  }

  replace(root,
    el("div.head", {}, el("h1", {}, "Settings"),
      el("div.row", { role: "search" }, el("label", { for: "search" }, "Search"), search,
        el("label", { for: "only" }, only, "only what differs from the default"))),
    el("div.stack", {}, change(found), count, cards, nothing));
  sift();
}

/** Where the file is, and what to do after it was edited. */
function change(found) {
  const told = el("span.quiet", { role: "status" });
  const copy = el("button", { type: "button", onclick: async () => {
    try {
      await navigator.clipboard.writeText(found.toml);
      told.textContent = "Copied.";
    } catch {
      // Only pages of this machine, or by https, may write there.
      box.open = true;
      box.querySelector("textarea").select();
      told.textContent = "Mark and copy it below.";
    }
  } }, "Copy as TOML");
  const box = el("details", {}, el("summary", {}, "All of it as a file"),
    el("textarea.toml", { readOnly: true, rows: 12, spellcheck: "false", "aria-label": "All settings as TOML", value: found.toml }));
  return el("section.card.stack", { "aria-label": "How to change a setting" },
    el("h2", {}, "How to change a setting"),
    found.file
      ? el("p", {}, "These are from ", el("code", {}, found.file), ", and defaults where that says nothing. Edit the file, then let the daemon read it again:")
      : el("p", {}, "No file was given: these are defaults. Write one, and start the daemon with ", el("code", {}, "gemmed run --config gemmed.toml"), ". After a change let it read the file again:"),
    el("pre", {}, `systemctl reload gemmed${found.pid ? `\nkill -HUP ${found.pid}` : ""}`),
    el("p.quiet", {}, "A file that cannot be used changes nothing: Activity says why, and the daemon goes on as before. Secrets are never shown here."),
    el("div.row", {}, copy, told), box);
}

function table({ name, about, settings }) {
  return el("section.card.table", { "aria-label": `[${name}]` },
    el("h2", {}, el("code", {}, `[${name}]`)), el("p.quiet", {}, about.replaceAll("`", "")),
    el("table.settings.stacked", {},
      el("thead", {}, el("tr", {}, ["Setting", "Value", "Default", "A change counts"].map((one) => el("th", { scope: "col" }, one)))),
      el("tbody", {}, settings.map((one) => el("tr", { data: { text: `${name}.${one.key} ${written(one.value)}`.toLowerCase(), ...(one.differs ? { differs: "yes" } : {}) } },
        el("th", { scope: "row" }, el("code", {}, one.key)),
        el("td.value", {}, el("code", {}, written(one.value)), one.differs && el("span.changed", {}, "differs")),
        el("td.default", { data: { name: "default" } }, el("code.quiet", {}, written(one.default))),
        el("td.when", { title: WHEN[one.takes_effect], data: { name: "a change counts" } }, one.takes_effect))))));
}

/** As in the file. */
function written(value) {
  if (value === null) return "not set";
  if (Array.isArray(value)) return value.length ? `[${value.map((one) => (typeof one === "object" ? Object.entries(one).map(([key, each]) => `${key} ${each}`).join(", ") : written(one))).join(", ")}]` : "none";
  return String(value);
}
