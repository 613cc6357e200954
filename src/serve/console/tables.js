// The tables of the state page: exact figures, as of the last answer.

import { bytes, duration, share, whole } from "./numbers.js";

const kHits = {
  none: "nothing found",
  session: "a state that an earlier turn left, nothing replayed",
  exact: "blocks; windows rebuilt exactly",
  bounded: "blocks; windows by a bounded replay",
};

function counts(object, names = {}) {
  return Object.entries(object).map(
    ([name, n]) => [name.replaceAll("_", " "), whole(n), names[name]]);
}

function tierRows(tier) {
  const of = (name) => `${tier.name}: ${name}`;
  return [
    [of("blocks"), whole(tier.blocks)],
    [of("bytes"), `${bytes(tier.bytes)} of ${bytes(tier.bytes_max)}`],
    [of("reads"), whole(tier.hits), "blocks that came back, verified"],
    [of("reads missing"), whole(tier.missing)],
    [of("reads that failed their checks"), whole(tier.bad), "dropped, and computed again"],
    [of("kept"), whole(tier.kept)],
    [of("dropped"), whole(tier.dropped), "the queue was full, or the device failed"],
    [of("evicted for room"), whole(tier.evicted_size)],
    [of("evicted by age"), whole(tier.evicted_age)],
    ...(tier.written_bytes > 0 && tier.put_payload_bytes > 0
      ? [[of("written over kept"), (tier.written_bytes / tier.put_payload_bytes).toFixed(2)]] : []),
  ];
}

// A table without rows is not shown.
export const kTables = [
  {
    title: "Sequences by phase",
    rows: ({ phases, waiting_s }) => [
      ["waiting", whole(phases.waiting), "for a slot or blocks"],
      ["longest wait", duration(waiting_s)],
      ["restoring", whole(phases.restoring), "blocks or a state come from a tier"],
      ["replaying", whole(phases.replaying), "rebuilding windows after a hit"],
      ["prefilling", whole(phases.prefilling)],
      ["decoding", whole(phases.decoding)],
      ["parked", whole(phases.parked), "pre-empted, windows in host memory"],
    ],
  },
  {
    title: "Queue",
    rows: ({ queue, requests }) => [
      ["requests taken in", `${whole(queue.requests)} of ${whole(queue.requests_max)}`],
      ["outputs not yet taken", `${whole(queue.outputs)} of ${whole(queue.outputs_max)}`],
      ...counts(requests.ended).map(([name, n]) => [`ended: ${name}`, n]),
      ...counts(requests.refused).filter(([, n]) => n !== "0")
        .map(([name, n]) => [`refused: ${name}`, n]),
    ],
  },
  {
    title: "Requests by hit",
    rows: ({ hits, tokens }) => [
      ...counts(hits, kHits),
      ["prompt tokens cached", share(tokens.cached, tokens.prompt)],
    ],
  },
  { title: "Tokens", rows: ({ tokens }) => counts(tokens) },
  {
    title: "Tiers",
    rows: ({ tiers, restores }) => tiers.length === 0 ? [] : [
      ...tiers.flatMap(tierRows),
      ["waits for blocks", whole(restores.count)],
      ["with fewer than promised", whole(restores.cut), "lost, bad or late"],
      ["of these, late", whole(restores.late)],
      ["tokens restored", whole(restores.tokens)],
      ["time waited", duration(restores.wait_us / 1e6)],
    ],
  },
  {
    title: "Shared states",
    rows: ({ shared_states: of }) => of === null ? [] : [
      ["found", whole(of.hits), "states of other processes, verified"],
      ["not there", whole(of.missing)],
      ["failed their checks", whole(of.bad), "removed, and replayed"],
      ["no answer", whole(of.failed)],
      ["not looked for", whole(of.paused), "after failures, for a while"],
      ["bytes that came", bytes(of.hit_bytes)],
      ["kept", whole(of.kept)],
      ["bytes kept", bytes(of.put_bytes)],
      ["dropped", whole(of.dropped), "the queue was full, or the server failed"],
      ["timeouts", whole(of.timeouts)],
      ["connections refused or lost", whole(of.refusals)],
      ["answers that are none", whole(of.protocol)],
      ["waits longer than the bound", whole(of.late)],
      ["time waited", duration(of.wait_us / 1e6)],
    ],
  },
  {
    title: "Steps",
    rows: ({ steps, preempted }) => [
      ["steps", whole(steps.count)],
      ["rows", whole(steps.rows)],
      ["failed", whole(steps.failed)],
      ["time in steps", duration(steps.busy_us / 1e6)],
      ["pre-empted, windows kept", whole(preempted.parked)],
      ["pre-empted, started again", whole(preempted.dropped)],
    ],
  },
  {
    title: "Server",
    rows: ({ server, blocks, uptime_s }) => [
      ["model", server.model],
      ["version", server.version],
      ["up", duration(uptime_s)],
      ["connections", whole(server.connections)],
      ["blocks evicted", whole(blocks.evicted)],
      ["blocks cleared", whole(blocks.cleared)],
    ],
  },
];
