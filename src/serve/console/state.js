// The state page: asks the server once a second while it is looked at, and keeps five minutes.

import { request } from "./api.js";
import { $, make, update } from "./dom.js";
import { kPlots } from "./figures.js";
import { showMemory } from "./memory.js";
import { notesOf } from "./notes.js";
import { Plot, kSpanS } from "./plot.js";
import { kTables } from "./tables.js";

const kEveryMs = 1000;

let watched = false;
let timer = null;
let samples = [];  // {atS, state}, the oldest first
let plots = null;
let tables = null;

export function watchState(on) {
  watched = on;
  if (on) ask();
  else clearTimeout(timer);
}

document.addEventListener("visibilitychange", () => {
  if (watched && document.visibilityState === "visible") ask();
});

async function ask() {
  clearTimeout(timer);
  if (!watched || document.visibilityState !== "visible") return;
  let problem = null;
  try {
    const state = await (await request("console/state", { cache: "no-store" })).json();
    take(state);
  } catch (error) {
    problem = error;
  }
  show(problem);
  clearTimeout(timer);
  if (watched) timer = setTimeout(ask, kEveryMs);
}

// A server that was started anew counts from zero again: what was before is of another one.
function take(state) {
  const last = samples.at(-1);
  if (last && state.uptime_s < last.state.uptime_s) samples = [];
  samples.push({ atS: performance.now() / 1000, state });
  const from = samples.at(-1).atS - kSpanS - 2;
  samples = samples.filter((sample) => sample.atS >= from);
}

function show(problem) {
  const state = samples.at(-1)?.state;
  const ageS = samples.length > 0 ? performance.now() / 1000 - samples.at(-1).atS : 0;
  const notes = notesOf(samples, problem, ageS);
  update($("notes"), notes.map((note) => make("li", { class: note.level }, note.text)));
  if (!state) return;
  showMemory(state);
  showTables(state);
  plots ??= kPlots.map((plot) => new Plot($("plots"), plot));
  for (const plot of plots) plot.draw(samples);
}

function showTables(state) {
  tables ??= kTables.map((table) => {
    const body = make("tbody");
    $("tables").append(make("section", {}, make("h2", {}, table.title), make("table", {}, body)));
    return body;
  });
  tables.forEach((body, i) => {
    const rows = kTables[i].rows(state).map(([name, value, title]) =>
      make("tr", {}, make("th", { scope: "row", title: title ?? false }, name),
        make("td", {}, value)));
    update(body, rows);
    body.closest("section").hidden = rows.length === 0;
  });
}
