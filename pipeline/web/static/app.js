// Which page is shown; and whether what it shows is alive.

import { clock, day, el, empty, failed, loading, long, replace } from "./dom.js";
import * as live from "./live.js";
import * as menu from "./menu.js";
import * as activity from "./pages/activity.js";
import * as past from "./pages/history.js";
import * as models from "./pages/models.js";
import * as now from "./pages/now.js";
import * as review from "./pages/review.js";
import * as sensor from "./pages/sensor.js";
import * as settings from "./pages/settings.js";
import * as timeline from "./pages/timeline.js";
import * as session from "./session.js";
import "./simulated.js";
import * as sounds from "./sounds.js";

// All pages are fetched at the beginning: without a connection you can still go from one to another.
const PAGES = [
  [/^\/$/, "now", "Now", now],
  [/^\/history$/, "history", "History", past],
  [/^\/timeline$/, "timeline", "Timeline", timeline],
  [/^\/review$/, "review", "Review", review],
  [/^\/activity$/, "activity", "Activity", activity],
  [/^\/models$/, "models", "Models", models],
  [/^\/sensors\/(\d+)$/, "sensor", "Sensor", sensor],
  [/^\/settings$/, "settings", "Settings", settings],
];
const NOWHERE = [/^/, "nowhere", "Not found", {
  show: (root) => replace(root, el("h1", {}, "Not found"),
    empty("There is no such page", "The menu has all there are; ", el("a", { href: "/" }, "Now"), " shows the array at this moment.")),
}];
const CONNECTION = {
  connecting: "connecting …",
  live: "live",
  reconnecting: "disconnected",
  silent: "silent",
  past: "not running",
};
const TROUBLE = {
  reconnecting: "Disconnected, trying again …",
  silent: "Connected, but the daemon sends no status.",
  past: "The daemon is not running; this is how it was.",
};

const A_DAY_MS = 86400000;

const root = document.querySelector("#page");
let leave = null;
let shown = 0;

async function show(path = location.pathname) {
  const mine = ++shown;
  leave?.();
  leave = null;
  sounds.stop();
  const [pattern, name, title, page] = PAGES.find(([one]) => one.test(path)) ?? NOWHERE;
  document.title = `${title} · gemmed`;
  root.dataset.page = name;
  menu.mark(path);
  // A page that was left before it was loaded writes where nobody looks any more.
  const own = el("div", {}, el("h1", {}, title), loading("the page"));
  replace(root, own);
  try {
    live.connect({ spectrogram: page.spectrogram ?? false });
    const left = await page.show(own, ...path.match(pattern).slice(1));
    if (mine === shown) leave = left;
    else left?.();
  } catch (error) {
    replace(own, el("h1", {}, title), failed(error, () => show(path)));
  }
}

/** Go to another page without losing the connection. */
export function go(path) {
  history.pushState({}, "", path);
  show();
  root.focus();
  scrollTo(0, 0);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const path = link.getAttribute("href").split("?")[0];
  if (link.hasAttribute("download") || !PAGES.some(([pattern]) => pattern.test(path))) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
addEventListener("popstate", () => show());

live.on("connection", (state) => {
  const told = document.querySelector("#connection");
  told.dataset.state = document.body.dataset.connection = state;
  told.textContent = CONNECTION[state];
  warn(state);
  // What could not be loaded is tried again, as anybody would by hand.
  if (state === "live") root.querySelectorAll(".failed button").forEach((button) => button.click());
});

/** What is on the page is old, and how old: a page that looks alive and is not would be believed. */
function warn(state) {
  const banner = document.querySelector("#banner");
  banner.hidden = !(state in TROUBLE);
  if (banner.hidden) return;
  const at = live.lastHeard();
  const old = at ? ` What you see is from ${Date.now() - at < A_DAY_MS ? clock(at) : day(at)}` : " Nothing was heard yet.";
  const age = el("span", { "aria-hidden": "true" });
  replace(banner, TROUBLE[state] + old, at ? age : "", at ? "." : "");
  const tick = () => { age.textContent = `, ${long((Date.now() - at) / 1000)} ago`; };
  tick();
  clearInterval(warn.timer);
  warn.timer = setInterval(() => (banner.hidden ? clearInterval(warn.timer) : tick()), 1000);
}
async function begin() {
  try {
    await session.load();
    show();
  } catch (error) {
    replace(root, failed(error, begin));
  }
}
begin();
