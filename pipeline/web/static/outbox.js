// Labels on their way to the server. What was said is kept here until the server has it, even if this page is closed.

import { post, Problem } from "./api.js";
import * as live from "./live.js";

const NAME = "gemmed-labels-to-send";
const AGAIN_MS = 2000;
let inMemory = [];
let sending = false;
let timer = null;
const listeners = new Set();
const numbers = new Map(); // of labels that the server has, by the key under which they were sent

function read() {
  try {
    return JSON.parse(localStorage.getItem(NAME)) ?? [];
  } catch {
    return inMemory; // storage may be forbidden; then they live as long as the page
  }
}

function write(entries) {
  inMemory = entries;
  try {
    localStorage.setItem(NAME, JSON.stringify(entries));
  } catch { /* see above */ }
}

const tell = (what) => listeners.forEach((listener) => listener({ waiting: read(), ...what }));
const drop = (key) => write(read().filter((entry) => entry.key !== key));

/** Hears `{ waiting, sent, answer, refused, error, delayed }`; returns how to stop. */
export function on(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const waiting = () => read();

/** Send a label soon; its key. `item` comes back with the error if the server refuses it. */
export function send(body, item) {
  const key = `${Date.now()}-${Math.random().toString(36).slice(2)}`;
  write([...read(), { key, body, item }]);
  tell({});
  flush();
  return key;
}

/** Take back a label; whether the server must be told, for it may know of it already. */
export function takeBack(key) {
  const entry = read().find((one) => one.key === key);
  const sent = !entry || entry.tried;
  if (sent) write([...read(), { key: `${key}-back`, takesBack: key, numbers: numbers.get(key) ?? [] }]);
  else drop(key);
  tell({});
  if (sent) flush();
  return sent;
}

async function flush() {
  if (sending) return;
  sending = true;
  clearTimeout(timer);
  try {
    for (let entry = read()[0]; entry; entry = read()[0]) {
      write(read().map((one) => (one.key === entry.key ? { ...one, tried: true } : one)));
      await deliver(entry);
    }
  } catch (error) {
    tell({ delayed: error });
    timer = setTimeout(flush, AGAIN_MS);
  } finally {
    sending = false;
  }
}

/** One of them; throws if it must be tried again. */
async function deliver(entry) {
  try {
    const answer = await (entry.takesBack ? deliverBack(entry) : post("/labels", entry.body));
    if (!entry.takesBack) learn(entry.key, answer.numbers);
    drop(entry.key);
    tell({ sent: entry, answer });
  } catch (error) {
    const later = !(error instanceof Problem) || error.code === 0 || error.code >= 500 || [401, 408, 425, 429].includes(error.code);
    if (later) throw error;
    drop(entry.key);
    // If only the answer was lost, it is taken back already.
    if (!(entry.takesBack && entry.tried)) tell({ refused: entry, error });
  }
}

async function deliverBack(entry) {
  // A label that the server refused has no number. A passage that lies in two recordings has two labels.
  let answer = {};
  for (const number of entry.numbers) answer = await post(`/labels/${number}/take-back`);
  return answer;
}

function learn(key, given) {
  numbers.set(key, given);
  write(read().map((one) => (one.takesBack === key ? { ...one, numbers: given } : one)));
}

live.on("connection", (state) => { if (state === "live" && read().length) flush(); });
