// What the plots show, each series as a function of a sample and the one before it.

// Growth of a counter a second; nothing where no second passed.
function rate(now, before, read) {
  const spanS = now.atS - before.atS;
  return spanS > 0 ? (read(now.state) - read(before.state)) / spanS : null;
}

// Growth of one counter over the growth of another; nothing where the other stood still.
function ratio(now, before, above, below) {
  const n = below(now.state) - below(before.state);
  return n > 0 ? (above(now.state) - above(before.state)) / n : null;
}

const gauge = (read) => (now) => read(now.state);
const rated = (read) => (now, before) => rate(now, before, read);
const ratioOf = (above, below) => (now, before) => ratio(now, before, above, below);

export const kPlots = [
  {
    title: "Throughput", unit: "tokens/s",
    series: [
      { name: "prefill", value: rated((s) => s.steps.prompt_rows) },
      { name: "decode", value: rated((s) => s.tokens.drawn) },
    ],
  },
  {
    title: "Step time", unit: "ms",
    series: [
      { name: "mean of a second",
        value: ratioOf((s) => s.steps.busy_us / 1000, (s) => s.steps.count) },
    ],
  },
  {
    title: "Sequences", unit: "", least: 4,
    series: [
      { name: "running",
        value: gauge(({ phases: p }) => p.replaying + p.prefilling + p.decoding) },
      { name: "waiting or parked", value: gauge(({ phases: p }) => p.waiting + p.parked) },
    ],
  },
  {
    title: "Blocks", unit: "% of all", max: 100,
    series: [
      { name: "held by sequences", value: gauge((s) => (100 * s.blocks.pinned) / s.blocks.total) },
      { name: "idle in the cache", value: gauge((s) => (100 * s.blocks.cached) / s.blocks.total) },
    ],
  },
  {
    title: "Prompt tokens found in the cache", unit: "%", max: 100, dots: true,
    series: [
      { name: "of requests started",
        value: ratioOf((s) => 100 * s.tokens.cached, (s) => s.tokens.prompt) },
    ],
  },
  {
    title: "Time to first token", unit: "s", dots: true,
    series: [
      { name: "mean of those that came",
        value: ratioOf((s) => s.requests.first_token_s, (s) => s.requests.first_tokens) },
    ],
  },
];
