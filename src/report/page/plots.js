"use strict";
// Line plots, bands and stacked areas as SVG. All plots share one x range and one cursor.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (or properties, for text) and children; text is never parsed as HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function draw(parent, tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function number_text(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toFixed(size >= 1e7 ? 1 : 2) + " M";
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size >= 100) return value.toFixed(1);
  if (size >= 10) return value.toFixed(2);
  if (size >= 0.001 || size === 0) return value.toFixed(3);
  return small_text(value, 3);
}

/** Below a thousandth, as people write it: 0.0001, 2.5e-7. */
function small_text(value, digits) {
  const short = +value.toPrecision(digits);
  return Math.abs(value) >= 1e-5 ? String(short) : short.toExponential();
}

/** Round numbers that divide [low, high] into about `count` parts. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const out = [];
  for (let i = Math.ceil(low / unit - 1e-9); i * unit <= high + unit * 1e-9; ++i) out.push(i * unit);
  return out;
}

function tick_text(value, unit) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6) return +(value / 1e6).toPrecision(4) + "M";
  if (size >= 10000) return +(value / 1000).toPrecision(4) + "k";
  if (size < 1e-3 || unit < 1e-4) return small_text(value, unit < size / 9 ? 2 : 1);
  return String(+value.toFixed(Math.max(0, 1 - Math.floor(Math.log10(unit)))));
}

/** Exponential mean with bias correction; gaps stay gaps. */
function smoothed(values, weight) {
  if (weight <= 0) return values;
  let mean = 0, total = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return mean / total;
  });
}

/** What all plots have in common: steps in sight (null: all), smoothing weight, the step under the cursor. */
const view = { range: null, full: [0, 1], smoothing: 0, cursor: null, plots: [] };

function set_range(range) {
  view.range = range;
  for (const plot of view.plots) plot.redraw();
  document.dispatchEvent(new CustomEvent("rangechange"));
}

function set_cursor(x) {
  view.cursor = x;
  for (const plot of view.plots) plot.move_cursor();
}

const HEIGHT = 168, LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 20;

/**
 * One card. `spec`: { title, kind: "line" | "band" | "stack", series: [{ label, x, y, color }], floor, unit }.
 * `x` are steps, ascending; `y` numbers or null. A band has the series low, high, middle.
 */
class Plot {
  constructor(spec) {
    this.spec = spec;
    this.reading = make("span", { class: "reading" });
    this.legend = make("div", { class: "legend" });
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("height", HEIGHT);
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("aria-label", spec.title);
    const name = make("span", { class: "name", text: spec.title, title: spec.title }, spec.unit ? make("span", { class: "unit", text: spec.unit }) : null);
    const head = make("div", { class: "card-head" }, name, this.reading);
    this.element = make("div", { class: "card" }, head, this.legend, this.svg);
    this.keys = spec.series.map((series) => {
      const value = make("b");
      if (spec.series.length > 1) {
        this.legend.append(make("span", { class: "key" }, make("i", { style: `background: var(--c${series.color})` }), series.label, value));
      }
      return value;
    });
    this.listen();
    new ResizeObserver(() => this.redraw()).observe(this.svg);
  }

  range() { return view.range || view.full; }
  to_x(step) { const [low, high] = this.range(); return LEFT + (step - low) / (high - low || 1) * (this.width - LEFT - RIGHT); }
  to_step(x) { const [low, high] = this.range(); return low + (x - LEFT) / (this.width - LEFT - RIGHT) * (high - low); }
  to_y(value) { return TOP + (this.top - value) / (this.top - this.bottom || 1) * (HEIGHT - TOP - BOTTOM); }

  redraw() {
    this.width = this.svg.clientWidth;
    if (!this.width) return;
    this.svg.replaceChildren();
    const stack = this.spec.kind === "stack";
    // In a band only the middle is smoothed: the smoothed extremes of single steps mean nothing.
    this.lines = this.spec.series.map((series) => stack ? series.y : smoothed(series.y, view.smoothing));
    this.scale_y();
    this.draw_axes();
    const clip = `clip-${view.plots.indexOf(this)}`;
    draw(draw(this.svg, "clipPath", { id: clip }), "rect", { x: LEFT - 3, y: TOP - 4, width: Math.max(0, this.width - LEFT - RIGHT + 6), height: HEIGHT - BOTTOM - TOP + 8 });
    this.area = draw(this.svg, "g", { "clip-path": `url(#${clip})` });
    if (stack) this.draw_stack();
    else if (this.spec.kind === "band") this.draw_band();
    else this.spec.series.forEach((series, i) => this.draw_line(series, i));
    this.marks = draw(this.svg, "g", {});
    this.move_cursor();
  }

  /** Values that are in sight, all series together. */
  visible_values() {
    const [low, high] = this.range();
    const out = [];
    this.spec.series.forEach((series, i) => {
      series.x.forEach((x, k) => {
        if (x < low || x > high) return;
        if (series.y[k] !== null) out.push(series.y[k]);
        if (this.lines[i][k] !== null) out.push(this.lines[i][k]);
      });
    });
    return out;
  }

  scale_y() {
    if (this.spec.kind === "stack") {
      this.bottom = 0;
      this.top = Math.max(1e-9, ...this.stacked().map((row) => row.at(-1))) * 1.04;
      return;
    }
    const values = this.visible_values();
    let low = values.length ? values.reduce((a, b) => Math.min(a, b)) : 0;
    let high = values.length ? values.reduce((a, b) => Math.max(a, b)) : 1;
    if (this.spec.floor !== undefined) low = Math.min(low, this.spec.floor);
    if (this.spec.ceiling !== undefined && high <= this.spec.ceiling) high = this.spec.ceiling;
    // Equal but for rounding: a flat line, not a magnified error.
    if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) { high += Math.abs(high) * 0.1 || 1; if (low !== 0) low -= Math.abs(low) * 0.1; }
    const margin = (high - low) * 0.05;
    this.bottom = low === this.spec.floor ? low : low - margin;
    this.top = high === this.spec.ceiling ? high : high + margin;
  }

  draw_axes() {
    const y_ticks = ticks(this.bottom, this.top, 4);
    const y_unit = y_ticks.length > 1 ? y_ticks[1] - y_ticks[0] : 1;
    for (const value of y_ticks) {
      const y = this.to_y(value);
      draw(this.svg, "line", { class: "gridline", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y });
      draw(this.svg, "text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, tick_text(value, y_unit));
    }
    const [low, high] = this.range();
    const x_ticks = ticks(low, high, Math.max(2, Math.floor(this.width / 75))).filter(Number.isInteger);
    for (const step of x_ticks) {
      draw(this.svg, "text", { x: this.to_x(step), y: HEIGHT - 5, "text-anchor": "middle" }, tick_text(step, 1));
    }
  }

  path(xs, ys) {
    let out = "", is_open = false;
    ys.forEach((y, i) => {
      if (y === null) { is_open = false; return; }
      out += `${is_open ? "L" : "M"}${this.to_x(xs[i]).toFixed(1)} ${this.to_y(y).toFixed(1)}`;
      is_open = true;
    });
    return out;
  }

  draw_line(series, index) {
    const stroke = { fill: "none", style: `stroke: var(--c${series.color})`, "stroke-linejoin": "round" };
    if (view.smoothing > 0) draw(this.area, "path", { ...stroke, d: this.path(series.x, series.y), "stroke-width": 1, opacity: 0.28 });
    draw(this.area, "path", { ...stroke, d: this.path(series.x, this.lines[index]), "stroke-width": 1.8 });
    const is_there = (i) => (this.lines[index][i] ?? null) !== null;
    series.x.forEach((x, i) => {
      // Of many points those that no line shows, between two gaps.
      if (!is_there(i) || (series.x.length > 40 && (is_there(i - 1) || is_there(i + 1)))) return;
      draw(this.area, "circle", { cx: this.to_x(x), cy: this.to_y(this.lines[index][i]), r: series.x.length < 15 ? 2.6 : 1.8, style: `fill: var(--c${series.color})` });
    });
  }

  draw_band() {
    const [low, high, middle] = this.spec.series;
    const tops = new Map(high.x.map((x, i) => [x, high.y[i]]));
    // Where a value is missing the band ends, and another one begins behind the gap.
    const runs = [[]];
    low.x.forEach((x, i) => {
      const a = low.y[i], b = tops.get(x) ?? null;
      if (a === null || b === null) runs.push([]);
      else runs.at(-1).push([x, a, b]);
    });
    for (const run of runs.filter((one) => one.length)) {
      const there = run.map(([x, , b]) => `${this.to_x(x).toFixed(1)} ${this.to_y(b).toFixed(1)}`);
      const back = run.map(([x, a]) => `${this.to_x(x).toFixed(1)} ${this.to_y(a).toFixed(1)}`).reverse();
      draw(this.area, "path", { d: `M${there.concat(back).join("L")}Z`, style: `fill: var(--c${middle.color})`, opacity: 0.16 });
    }
    this.draw_line(middle, 2);
  }

  /** Per step the running sums over the series. */
  stacked() {
    return this.spec.series[0].x.map((_, i) => {
      let sum = 0;
      return this.spec.series.map((series) => sum += series.y[i] || 0);
    });
  }

  draw_stack() {
    const xs = this.spec.series[0].x, sums = this.stacked();
    this.spec.series.forEach((series, k) => {
      const upper = sums.map((row, i) => `${this.to_x(xs[i]).toFixed(1)} ${this.to_y(row[k]).toFixed(1)}`);
      const lower = sums.map((row, i) => `${this.to_x(xs[i]).toFixed(1)} ${this.to_y(k ? row[k - 1] : 0).toFixed(1)}`).reverse();
      draw(this.area, "path", { d: `M${upper.concat(lower).join("L")}Z`, style: `fill: var(--c${series.color})`, opacity: 0.78 });
    });
  }

  /** Index of the point nearest to the cursor, or of the last one. */
  nearest(series) {
    if (view.cursor === null) return series.y.findLastIndex((y) => y !== null);
    let best = -1;
    series.x.forEach((x, i) => {
      if (series.y[i] !== null && (best < 0 || Math.abs(x - view.cursor) < Math.abs(series.x[best] - view.cursor))) best = i;
    });
    return best;
  }

  move_cursor() {
    if (!this.marks) return;
    this.marks.replaceChildren();
    const [low, high] = this.range();
    let step = null;
    this.spec.series.forEach((series, k) => {
      const i = this.nearest(series);
      const value = i < 0 ? null : this.lines[k][i];
      this.keys[k].textContent = number_text(value);
      if (i < 0) return;
      step = series.x[i];
      if (view.cursor === null || this.spec.kind === "stack" || step < low || step > high) return;
      draw(this.marks, "circle", { cx: this.to_x(step), cy: this.to_y(value), r: 3.4, style: `fill: var(--c${series.color}); stroke: var(--card)`, "stroke-width": 1.5 });
    });
    if (view.cursor !== null && step !== null && step >= low && step <= high) {
      draw(this.marks, "line", { class: "cursor", x1: this.to_x(step), x2: this.to_x(step), y1: TOP, y2: HEIGHT - BOTTOM });
    }
    const value = this.spec.series.length === 1 ? this.keys[0].textContent : "";
    this.reading.replaceChildren(view.cursor === null || step === null ? "" : `step ${step} `, make("b", { text: value }));
  }

  /** Hover moves the cursor, dragging zooms, a double click shows everything, a click picks the step's rollouts. */
  listen() {
    let begin = null, brush = null;
    const position = (event) => event.clientX - this.svg.getBoundingClientRect().left;
    this.svg.addEventListener("pointermove", (event) => {
      const x = Math.min(Math.max(position(event), LEFT), this.width - RIGHT);
      set_cursor(this.to_step(x));
      if (begin === null) return;
      brush = brush || draw(this.svg, "rect", { class: "brush", y: TOP, height: HEIGHT - TOP - BOTTOM });
      brush.setAttribute("x", Math.min(x, begin));
      brush.setAttribute("width", Math.abs(x - begin));
    });
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") return;
      begin = position(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointerup", (event) => {
      if (begin === null) return;
      const [from, to] = [begin, position(event)].sort((a, b) => a - b).map((x) => this.to_step(x));
      const dragged = Math.abs(position(event) - begin) > 6;
      begin = null;
      if (brush) brush.remove();
      brush = null;
      if (dragged) set_range([Math.max(view.full[0], from), Math.min(view.full[1], to)]);
      else document.dispatchEvent(new CustomEvent("pickstep", { detail: from }));
    });
    this.svg.addEventListener("dblclick", () => set_range(null));
    this.svg.addEventListener("pointerleave", () => set_cursor(null));
  }
}
