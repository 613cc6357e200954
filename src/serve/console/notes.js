// What wants attention, in words: what somebody woken at night would look for first.

import { duration, whole } from "./numbers.js";

const kStalledS = 10;
const kWaitedS = 30;

export function notesOf(samples, problem, ageS) {
  const notes = [];
  const bad = (text) => notes.push({ level: "bad", text });
  const warn = (text) => notes.push({ level: "warn", text });
  if (problem) {
    const since = samples.length > 0 ? `; the figures are ${duration(ageS)} old` : "";
    bad(`${problem.status > 0 ? `${problem.status}: ` : ""}${problem.message}${since}`);
  }
  if (samples.length === 0) return notes;
  const now = samples.at(-1).state;
  if (!now.ready) warn("The server is going down: it finishes what it took in.");
  stalled(samples, bad);
  full(now, bad, warn);
  grown(samples, bad, warn);
  if (notes.length === 0) notes.push({ level: "good", text: "Ready. Nothing wants attention." });
  return notes;
}

function stalled(samples, bad) {
  const now = samples.at(-1);
  const { phases, steps } = now.state;
  if (phases.replaying + phases.prefilling + phases.decoding === 0) return;
  const moved = samples.findLast((sample) => sample.state.steps.count !== steps.count);
  const since = samples[samples.indexOf(moved) + 1].atS;
  if (now.atS - since >= kStalledS) {
    bad(`No step ended for ${duration(now.atS - since)} while sequences run.`);
  }
}

function full(now, bad, warn) {
  const { queue, phases, blocks, windows } = now;
  if (queue.requests >= queue.requests_max) bad("The queue is full: requests get 429.");
  if (queue.outputs >= queue.outputs_max) warn("Outputs wait for their readers: sequences wait.");
  if (now.waiting_s >= kWaitedS) {
    const slots = windows.used >= windows.total;
    warn(`A request waits for ${duration(now.waiting_s)}: ` +
         `${slots ? "all windows are in use" : "blocks or its tenant's turn"}.`);
  }
  if (phases.waiting > 0 && blocks.pinned >= 0.95 * blocks.total) {
    warn("Nearly all blocks are held by sequences: --blocks bounds what runs at once.");
  }
}

// Counters that should stand still, over the five minutes that are kept.
function grown(samples, bad, warn) {
  const first = samples[0].state;
  const now = samples.at(-1).state;
  const grew = (read) => read(now) - read(first);
  const failed = grew((s) => s.steps.failed);
  const errors = grew((s) => s.requests.ended.error);
  const preempted = grew((s) => s.preempted.parked + s.preempted.dropped);
  if (failed > 0) bad(`Steps failed lately: ${whole(failed)}.`);
  if (errors > 0) bad(`Requests lost lately: ${whole(errors)}.`);
  for (const [reason, n] of Object.entries(now.requests.refused)) {
    const lately = n - (first.requests.refused[reason] ?? 0);
    if (lately > 0) warn(`Refused lately (${reason.replaceAll("_", " ")}): ${whole(lately)}.`);
  }
  if (preempted > 0) warn(`Sequences pre-empted lately: ${whole(preempted)}.`);
}
