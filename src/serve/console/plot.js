// A plot over the last five minutes: SVG with axes and units, and its exact figures in a table.

import { make, makeSvg, update } from "./dom.js";
import { short } from "./numbers.js";

export const kSpanS = 300;
const kGapS = 3;  // samples further apart are not joined
const kWidth = 360;
const kHeight = 150;
const kLeft = 36;
const kRight = 8;
const kTop = 8;
const kBottom = 20;
const kInnerX = kWidth - kLeft - kRight;
const kInnerY = kHeight - kTop - kBottom;

// The least of 1, 2, 5 times a power of ten that is not below n.
export function niceMax(n) {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].find((step) => step * power >= n * (1 - 1e-9)) * power;
}

function valuesOf(series, samples) {
  const points = [];
  samples.forEach((now, i) => {
    const before = samples[i - 1];
    const near = before && now.atS - before.atS <= kGapS;
    const value = series.value.length > 1 ? (near ? series.value(now, before) : null)
                                          : series.value(now);
    points.push({ atS: now.atS, value, joined: Boolean(near) });
  });
  return points;
}

export class Plot {
  // `max` is the upper end of the axis, `least` where it may end at the lowest.
  constructor(parent, { title, unit, series, max = 0, least = 0, dots = false }) {
    this.title = title;
    this.unit = unit;
    this.series = series;
    this.max = max;
    this.least = least;
    this.dots = dots;
    this.svg = makeSvg("svg", { viewBox: `0 0 ${kWidth} ${kHeight}`, role: "img" });
    this.body = make("tbody");
    const head = make("tr", {}, make("th", { scope: "col" }, unit || "count"),
      ...["now", "mean", "most"].map((name) => make("th", { scope: "col" }, name)));
    const caption = unit === "" ? title : `${title}, ${unit}`;
    parent.append(make("figure", { class: "plot" }, make("figcaption", {}, caption), this.svg,
      make("table", {}, make("thead", {}, head), this.body)));
  }

  draw(samples) {
    const endS = samples.at(-1).atS;
    const lines = this.series.map((series) => valuesOf(series, samples));
    const known = lines.flat().map((point) => point.value).filter((value) => value !== null);
    const max = this.max || Math.max(this.least, niceMax(Math.max(0, ...known)));
    const x = (atS) => kLeft + kInnerX * (1 - (endS - atS) / kSpanS);
    const y = (value) => kTop + kInnerY * (1 - Math.min(value, max) / max);
    const drawn = lines.map((points, i) => this.drawn(points, i, x, y));
    this.svg.replaceChildren(...this.axes(max, y), ...drawn.flat());
    this.tell(lines);
  }

  axes(max, y) {
    const parts = [];
    for (const value of [0, max / 2, max]) {
      parts.push(
        makeSvg("path", { class: "grid", d: `M${kLeft} ${y(value)}H${kWidth - kRight}` }),
        makeSvg("text", { class: "tick", x: kLeft - 4, y: y(value) + 3, "text-anchor": "end" },
          short(value)));
    }
    for (let minutes = 0; minutes <= kSpanS / 60; ++minutes) {
      const place = {
        x: kWidth - kRight - (kInnerX * minutes * 60) / kSpanS,
        y: kHeight - 5,
        "text-anchor": minutes === 0 ? "end" : "middle",
      };
      const label = minutes === 0 ? "now" : `-${minutes} min`;
      parts.push(makeSvg("text", { class: "tick", ...place }, label));
    }
    return parts;
  }

  drawn(points, i, x, y) {
    const places = points.filter((point) => x(point.atS) >= kLeft).map(({ atS, value, joined }) =>
      ({ joined, at: value === null ? null : [x(atS).toFixed(1), y(value).toFixed(1)] }));
    if (this.dots) {
      return places.filter(({ at }) => at !== null).map(({ at: [cx, cy] }) =>
        makeSvg("circle", { class: `dot series-${i}`, r: 2, cx, cy }));
    }
    let path = "";
    places.forEach(({ at, joined }, n) => {
      if (at === null) return;
      path += `${joined && n > 0 && places[n - 1].at !== null ? "L" : "M"}${at.join(" ")}`;
    });
    return path === "" ? [] : [makeSvg("path", { class: `line series-${i}`, d: path })];
  }

  tell(lines) {
    const texts = [];
    const rows = lines.map((points, i) => {
      const known = points.map((point) => point.value).filter((value) => value !== null);
      const last = this.dots ? known.at(-1) : points.at(-1).value;
      const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
      const cells = [last ?? null, known.length > 0 ? mean : null,
        known.length > 0 ? Math.max(...known) : null];
      const shown = cells.map((value) => (value === null ? "none" : figure(value)));
      const { name } = this.series[i];
      texts.push(`${name} now ${shown[0]}, mean ${shown[1]}, most ${shown[2]}`);
      const key = make("span", { class: `key series-${i}`, "aria-hidden": "true" });
      return make("tr", {}, make("th", { scope: "row" }, key, name),
        ...shown.map((text) => make("td", {}, text)));
    });
    update(this.body, rows);
    const unit = this.unit === "" ? "" : ` in ${this.unit}`;
    this.svg.setAttribute(
      "aria-label", `${this.title}${unit}, last five minutes: ${texts.join("; ")}`);
  }
}

function figure(value) {
  return Number.isInteger(value) ? value.toFixed(0) : value.toFixed(value < 10 ? 2 : 1);
}
