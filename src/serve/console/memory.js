// Where every byte of state lives: one bar for all pools, and a table of exact figures.

import { $, make, update } from "./dom.js";
import { bytes, share, whole } from "./numbers.js";

// Parts of the bar in order; `of` is the size of the pool that the part belongs to.
export function partsOf(state) {
  const { blocks, windows, others, phases } = state;
  const live = windows.used + phases.parked;
  const block = (name, n, kind) =>
    ({ name, n, kind, bytes: n * blocks.bytes, of: blocks.total * blocks.bytes });
  const slot = (name, n, kind) =>
    ({ name, n, kind, bytes: n * windows.bytes, of: windows.total * windows.bytes });
  return [
    block("Blocks held by sequences", blocks.pinned, "pinned"),
    block("Blocks idle in the cache", blocks.cached, "cached"),
    block("Blocks free", blocks.free, "free"),
    slot("Windows of live sequences", windows.used, "windows"),
    slot("Windows free", windows.total - windows.used, "free"),
    { name: "Rows that wait for the decoder", n: live, kind: "tails", bytes: others.tail_bytes,
      of: 0 },
    { name: "Windows of parked sequences (host)", n: phases.parked, kind: "parked",
      bytes: others.parked_bytes, of: 0 },
    { name: "States kept for next turns (host)", n: others.sessions, kind: "sessions",
      bytes: others.session_bytes, of: others.session_bytes_max },
  ];
}

export function showMemory(state) {
  const parts = partsOf(state);
  const all = parts.reduce((sum, part) => sum + part.bytes, 0);
  const bar = parts.map((part) => {
    const piece = make("span", { class: `part ${part.kind}`, title: part.name });
    piece.style.flexGrow = `${all > 0 ? part.bytes / all : 0}`;
    return piece;
  });
  update($("memory-bar"), bar);
  $("memory-bar").setAttribute(
    "aria-label", parts.map((part) => `${part.name}: ${bytes(part.bytes)}`).join("; "));
  const rows = parts.map((part) => make("tr", {},
    make("th", { scope: "row" },
      make("span", { class: `swatch ${part.kind}`, "aria-hidden": "true" }), part.name),
    make("td", {}, whole(part.n)),
    make("td", { title: `${whole(part.bytes)} B` }, bytes(part.bytes)),
    make("td", {}, part.of > 0 ? share(part.bytes, part.of) : "")));
  const sum = make("tr", { class: "sum" }, make("th", { scope: "row" }, "All"), make("td"),
    make("td", { title: `${whole(all)} B` }, bytes(all)), make("td"));
  update($("memory").tBodies[0], [...rows, sum]);
}
