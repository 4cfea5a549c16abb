// What a timeline knows: loaded once for a range, and then continued by events as they come.

const SINGLES = 3000;
const PASSAGES = new Set(["passage_started", "passage_updated", "passage_ended"]);
const ANOMALIES = new Set(["event_noticed", "fault_suspected", "common_fault", "label_doubted"]);
// These change more than can be told from the event alone; they are rare.
const ANEW = new Set(["recording_started", "gap", "label_given", "run_started", "run_stopped", "run_died", "storage_pruned", "journal_replaced"]);

/** An answer of /timeline, with bands that are still going on at its end left open. */
export function opened(answer) {
  const until = (bands) => {
    const past = bands.filter((band) => band.begin < answer.now && band.kind !== "future");
    if (answer.end >= answer.now && past.length) past.push({ ...past.pop(), end: Infinity });
    return past;
  };
  return {
    ...answer,
    listening: until(answer.listening),
    sound: until(answer.sound),
    models: until(answer.models),
    sensors: answer.sensors.map((one) => ({ ...one, states: until(one.states), trust: until(one.trust) })),
  };
}

function change(bands, at, kind, why, event) {
  const last = bands.at(-1);
  if (!last || last.end !== Infinity || (last.kind === kind && last.why === why)) return;
  last.end = Math.max(at, last.begin);
  bands.push({ begin: last.end, end: Infinity, kind, why, event, n: 1 });
}

function decide(data, event, at) {
  const { tally } = data;
  const begin = Math.floor(at / tally.bin_seconds) * tally.bin_seconds;
  let bin = tally.bins.at(-1);
  if (bin?.begin !== begin) {
    bin = { begin, labels: {}, undecided: 0, refused: event.roles.map(() => 0) };
    tally.bins.push(bin);
  }
  if (event.label === null) bin.undecided += 1;
  else bin.labels[event.label] = (bin.labels[event.label] ?? 0) + 1;
  event.roles.forEach((role, sensor) => { if (role === "anomalous") bin.refused[sensor] = (bin.refused[sensor] ?? 0) + 1; });
  if (!data.decisions) return;
  data.decisions.push({
    event: event.id, time: at, seconds: 0, label: event.label, probability: event.probability,
    log_odds: event.fused_log_odds, reason: event.reason, roles: event.roles,
  });
  if (data.decisions.length > SINGLES) data.decisions = null;
}

function trust(data, event, at) {
  data.sensors.forEach((sensor, place) => {
    const now = sensor.trust.at(-1)?.kind;
    const trusted = event.trusted[place];
    if (event.by === "operator") change(sensor.trust, at, trusted ? "trusted" : "off", "", event.id);
    else if (now !== "off") change(sensor.trust, at, trusted ? "trusted" : "masked", "", event.id);
  });
}

/** A passage that begins, goes on or ends. */
function pass(data, event, at) {
  const rateHz = event.stop_sample / event.end_seconds;
  const second = (sample) => at - (event.sample - sample) / rateHz;
  let bar = data.passages.find((one) => one.passage === event.passage);
  if (!bar) data.passages.push(bar = { passage: event.passage, begin: second(event.start_sample), labeled: null, n: 1 });
  Object.assign(bar, { end: second(event.stop_sample), label: event.label, probability: event.probability });
}

/** Take an event in; whether the server must be asked again, for it changes more than one can tell from here. */
export function take(data, event) {
  if (event.id <= data.last_id) return false;
  data.last_id = event.id;
  const at = Date.parse(event.time) / 1000;
  if (event.type === "decision") decide(data, event, at);
  else if (PASSAGES.has(event.type)) pass(data, event, at);
  else if (event.type === "state_changed") {
    const sensor = data.sensors[event.sensor - 1];
    if (sensor) change(sensor.states, at, event.to, event.causes.join(", "), event.id);
  } else if (event.type === "trust_changed") trust(data, event, at);
  else if (event.type === "model_changed") change(data.models, at, event.model ?? "none", event.model ? "" : "no model decided", event.id);
  else if (ANOMALIES.has(event.type)) {
    data.anomalies.push({ time: at, kind: event.type, reason: event.reason, event: event.id, sensors: event.sensors, n: 1 });
  }
  return ANEW.has(event.type);
}
