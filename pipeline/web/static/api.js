// Questions to the server. An answer is JSON; an error carries the server's own words.

export class Problem extends Error {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

/** Where one gets a session, and comes back from. */
export function toLogin() {
  if (location.pathname === "/login") return;
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}

/** What is at an address of our own, or a problem. */
export async function fetched(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, { credentials: "same-origin", ...options });
  } catch {
    throw new Problem("The server does not answer; it may be restarting.", 0);
  }
  if (answer.status === 401) toLogin();
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  throw new Problem(body?.error ?? `The server answered ${answer.status}.`, answer.status);
}

const ask = async (path, options) => (await fetched(`/api/v1${path}`, options)).json().catch(() => null);

const query = (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given.flatMap(([key, value]) => [value].flat().map((one) => [key, one])))}` : "";
};

export const get = (path, values = {}, options = {}) => ask(path + query(values), options);

/** Changes carry a header that no foreign page can send. */
export const post = (path, body = {}, method = "POST") =>
  ask(path, { method, headers: { "Content-Type": "application/json", "X-Gemmed": "dashboard" }, body: JSON.stringify(body) });

export const soundAddress = (recording, start, stop, sensor = null) =>
  `/api/v1/sound/${encodeURIComponent(recording)}${query({ start, stop, sensor, normalise: true })}`;
