// The tables of the state page: exact figures, as of the last answer.

import { duration, share, whole } from "./numbers.js";

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

export const kTables = [
  {
    title: "Sequences by phase",
    rows: ({ phases, waiting_s }) => [
      ["waiting", whole(phases.waiting), "for a slot or blocks"],
      ["longest wait", duration(waiting_s)],
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
