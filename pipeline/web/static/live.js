// The one connection of a page: server-sent events, and what is to be thought of them.

import { get, toLogin } from "./api.js";

const STALE_MS = 15000;
const MOST_RECENT = 500;
const listeners = new Map();
let source = null;
let withSpectrogram = false;
let heardAt = 0;
let recent = []; // the last events, for whoever has asked the server while they came
let lastId = 0;
let state = "connecting";

/** Kinds: "status", "events", "columns" as the server tells them, and "connection" with its state. Returns how to stop. */
export function on(kind, listener) {
  if (!listeners.has(kind)) listeners.set(kind, new Set());
  listeners.get(kind).add(listener);
  if (kind === "connection") listener(state);
  return () => listeners.get(kind).delete(listener);
}

/** Events behind one that a page knows of, as far as they are remembered. */
export const since = (id) => recent.filter((event) => event.id > id);

/** Hear of events behind one that a page knows of, also of those that came while it was loaded. Returns how to stop. */
export function follow(id, listener) {
  const hear = (events) => {
    const fresh = events.filter((event) => event.id > id);
    if (fresh.length) listener(fresh);
  };
  hear(recent);
  return on("events", hear);
}

/** When the server or the daemon was heard last, in milliseconds; 0 if never. */
export const lastHeard = () => heardAt;

const tell = (kind, value) => listeners.get(kind)?.forEach((listener) => listener(value));

function become(next) {
  if (next === state) return;
  state = next;
  tell("connection", state);
}

/** Open the connection, or change what comes through it. */
export function connect({ spectrogram = false } = {}) {
  if (source && spectrogram === withSpectrogram && source.readyState !== EventSource.CLOSED) return;
  source?.close();
  withSpectrogram = spectrogram;
  open();
}

function open() {
  source = new EventSource(`/api/v1/stream${withSpectrogram ? "?spectrogram=true" : ""}`);
  source.onopen = () => heard();
  source.onerror = () => {
    become("reconnecting");
    // A server that answered with an error ends the connection for good; we do not give up.
    if (source.readyState === EventSource.CLOSED) setTimeout(again, 2000);
  };
  source.addEventListener("status", (message) => {
    const status = JSON.parse(message.data);
    heardOf(status);
    tell("status", status);
  });
  source.addEventListener("columns", (message) => tell("columns", JSON.parse(message.data)));
  source.addEventListener("events", (message) => {
    const fresh = JSON.parse(message.data).filter((event) => event.id > lastId);
    if (!fresh.length) return;
    lastId = fresh.at(-1).id;
    recent = [...recent, ...fresh].slice(-MOST_RECENT);
    tell("events", fresh);
  });
}

/** It may have been because the session has ended. */
async function again() {
  const session = await get("/session").catch(() => null);
  if (session && !session.who) toLogin();
  else open();
}

/** Without a daemon the server tells what that told last. */
function heardOf(status) {
  const age = (status.told_seconds_ago ?? 0) * 1000;
  if (status.running !== false && age < STALE_MS) return heard();
  heardAt = Date.now() - age;
  become("past");
}

function heard() {
  heardAt = Date.now();
  become("live");
}

setInterval(() => {
  if (state === "live" && Date.now() - heardAt > STALE_MS) become("silent");
}, 1000);
