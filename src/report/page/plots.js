// Line plots, bands and stacked areas as SVG. All plots share one x range and one cursor.

import { SVG, draw, duration_text, make, number_text, tick_text, ticks } from "./dom.js";

/** Exponential mean with bias correction; gaps stay gaps. */
export function smoothed(values, weight) {
  if (weight <= 0) return values;
  let mean = 0, total = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return mean / total;
  });
}

/**
 * What all plots have in common: the part of the x axis in sight (null: all), smoothing weight, x under the cursor, what x is
 * ("step", or seconds: "time"), whether y is logarithmic.
 */
export const view = { range: null, full: [0, 1], smoothing: 0, cursor: null, axis: "step", is_log: false, plots: [] };

export function set_range(range) {
  view.range = range;
  redraw_all();
  document.dispatchEvent(new CustomEvent("rangechange"));
}

export function set_cursor(x) {
  view.cursor = x;
  schedule();
}

export function redraw_all() {
  for (const plot of view.plots) plot.invalidate();
}

export function x_text(x) { return view.axis === "time" ? duration_text(x) : String(Math.round(x)); }

let is_scheduled = false;

/** Draws what changed and is in sight, once per frame. */
function schedule() {
  if (is_scheduled) return;
  is_scheduled = true;
  requestAnimationFrame(() => {
    is_scheduled = false;
    for (const plot of view.plots) {
      if (!plot.is_visible) continue;
      if (plot.is_dirty) plot.redraw();
      else plot.move_cursor();
    }
  });
}

/** Plots out of sight wait until they are scrolled to. */
const in_sight = new IntersectionObserver((entries) => {
  for (const entry of entries) entry.target.plot.is_visible = entry.isIntersecting;
  schedule();
}, { rootMargin: "200px" });

/** Index of the first element of the ascending `xs` that is at least `x`. */
export function lower_bound(xs, x) {
  let low = 0, high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

const HEIGHT = 168, LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 20;
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

let num_plots = 0;

/**
 * One card. `spec`: { title, kind: "line" | "band" | "stack", series: [{ label, x, y, color, dash }], floor, ceiling, unit }.
 * `x` are ascending; `y` numbers or null. A band has the series low, high, middle. `update` replaces the series.
 */
export class Plot {
  constructor(spec) {
    this.id = `clip-${num_plots++}`;
    this.reading = make("span", { class: "reading" });
    this.legend = make("div", { class: "legend" });
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("height", HEIGHT);
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("tabindex", "0");
    this.svg.setAttribute("aria-label", `${spec.title}${spec.unit ? `, ${spec.unit}` : ""}. Arrow keys move the cursor, plus and minus zoom, 0 shows all, Enter opens the step's samples.`);
    const name = make("span", { class: "name", text: spec.title, title: spec.title }, spec.unit ? make("span", { class: "unit", text: spec.unit }) : null);
    const head = make("div", { class: "card-head" }, name, this.reading);
    // What follows the cursor is a layer of its own: the lines below are not painted again.
    this.overlay = document.createElementNS(SVG, "svg");
    this.overlay.setAttribute("class", "overlay");
    this.overlay.setAttribute("height", HEIGHT);
    this.overlay.setAttribute("aria-hidden", "true");
    this.element = make("div", { class: "card" }, head, this.legend, make("div", { class: "plot" }, this.svg, this.overlay));
    this.element.plot = this;
    this.is_visible = false;
    this.update(spec);
    this.listen();
    new ResizeObserver(() => this.invalidate()).observe(this.svg);
    in_sight.observe(this.element);
  }

  update(spec) {
    this.spec = spec;
    this.lines = null;
    this.legend.replaceChildren();
    this.keys = spec.series.map((series) => {
      const value = make("b");
      if (spec.series.length > 1) {
        const mark = make("i", { style: `background: var(--c${series.color})` });
        if (series.dash) mark.classList.add("dashed");
        this.legend.append(make("span", { class: "key", title: series.label }, mark, make("span", { class: "label", text: series.label }), value));
      }
      return value;
    });
    this.invalidate();
  }

  invalidate() {
    this.is_dirty = true;
    schedule();
  }

  range() { return view.range || view.full; }
  to_x(x) { const [low, high] = this.range(); return LEFT + (x - low) / (high - low || 1) * (this.width - LEFT - RIGHT); }
  from_x(x) { const [low, high] = this.range(); return low + (x - LEFT) / (this.width - LEFT - RIGHT) * (high - low); }
  get is_log() { return view.is_log && this.spec.kind !== "stack"; }
  to_y(value) {
    const at = this.is_log ? Math.log10(value) : value;
    return TOP + (this.top - at) / (this.top - this.bottom || 1) * (HEIGHT - TOP - BOTTOM);
  }

  redraw() {
    this.width = this.svg.clientWidth;
    if (!this.width) return;
    this.is_dirty = false;
    this.svg.replaceChildren();
    this.make_lines();
    this.scale_y();
    this.draw_axes();
    draw(draw(this.svg, "clipPath", { id: this.id }), "rect", { x: LEFT - 3, y: TOP - 4, width: Math.max(0, this.width - LEFT - RIGHT + 6), height: HEIGHT - BOTTOM - TOP + 8 });
    this.area = draw(this.svg, "g", { "clip-path": `url(#${this.id})` });
    if (this.spec.kind === "stack") this.draw_stack();
    else if (this.spec.kind === "band") this.draw_band();
    else this.spec.series.forEach((series, i) => this.draw_line(series, i));
    this.shown_at = undefined;
    this.move_cursor();
  }

  /** In a band only the middle is smoothed: the smoothed extremes of single steps mean nothing. */
  make_lines() {
    if (this.lines && this.smoothing === view.smoothing) return;
    this.smoothing = view.smoothing;
    this.lines = this.spec.series.map((series) => this.spec.kind === "stack" ? series.y : smoothed(series.y, view.smoothing));
  }

  /** Indices [begin, end) of what is in sight, and a point on each side, where lines go on. */
  visible(series) {
    const [low, high] = this.range();
    return [Math.max(0, lower_bound(series.x, low) - 1), Math.min(series.x.length, lower_bound(series.x, high) + 2)];
  }

  scale_y() {
    if (this.spec.kind === "stack") {
      let highest = 1e-9;
      const [begin, end] = this.spec.series.length ? this.visible(this.spec.series[0]) : [0, 0];
      for (let i = begin; i < end; ++i) {
        let sum = 0;
        for (const series of this.spec.series) sum += series.y[i] || 0;
        highest = Math.max(highest, sum);
      }
      [this.bottom, this.top] = [0, highest * 1.04];
      return;
    }
    let low = Infinity, high = -Infinity;
    const take = (value) => {
      if (value === null || value === undefined || (this.is_log && value <= 0)) return;
      if (value < low) low = value;
      if (value > high) high = value;
    };
    this.spec.series.forEach((series, i) => {
      const [from, to] = this.range();
      for (let k = lower_bound(series.x, from); k < series.x.length && series.x[k] <= to; ++k) { take(series.y[k]); take(this.lines[i][k]); }
    });
    if (this.is_log) {
      if (low > high) [low, high] = [0.1, 1];
      [low, high] = [Math.log10(low), Math.log10(high)];
      if (high - low < 1e-9) { low -= 0.5; high += 0.5; }
      const margin = (high - low) * 0.05;
      [this.bottom, this.top] = [low - margin, high + margin];
      return;
    }
    if (low > high) [low, high] = [0, 1];
    if (this.spec.floor !== undefined) low = Math.min(low, this.spec.floor);
    if (this.spec.ceiling !== undefined && high <= this.spec.ceiling) high = this.spec.ceiling;
    // Equal but for rounding: a flat line, not a magnified error.
    if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) { high += Math.abs(high) * 0.1 || 1; if (low !== 0) low -= Math.abs(low) * 0.1; }
    const margin = (high - low) * 0.05;
    this.bottom = low === this.spec.floor ? low : low - margin;
    this.top = high === this.spec.ceiling ? high : high + margin;
  }

  /** Values along the y axis with their texts. */
  y_ticks() {
    if (!this.is_log) {
      const values = ticks(this.bottom, this.top, 4);
      const unit = values.length > 1 ? values[1] - values[0] : 1;
      return values.map((value) => [value, tick_text(value, unit)]);
    }
    const powers = ticks(this.bottom, this.top, 4).map((power) => 10 ** power);
    return powers.map((value) => [value, tick_text(+value.toPrecision(2), value / 10)]);
  }

  draw_axes() {
    for (const [value, text] of this.y_ticks()) {
      const y = this.to_y(value);
      draw(this.svg, "line", { class: "gridline", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y });
      draw(this.svg, "text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, text);
    }
    const [low, high] = this.range();
    const is_time = view.axis === "time";
    for (const x of ticks(low, high, Math.max(2, Math.floor(this.width / 75)))) {
      if (!is_time && !Number.isInteger(x)) continue;
      draw(this.svg, "text", { x: this.to_x(x), y: HEIGHT - 5, "text-anchor": "middle" }, is_time ? duration_text(x) : tick_text(x, 1));
    }
  }

  /** The line through [begin, end). Of more points than pixels, the first, lowest, highest and last of each column. */
  path(xs, ys, begin, end) {
    let out = "", is_open = false;
    const point = (i) => {
      out += `${is_open ? "L" : "M"}${this.to_x(xs[i]).toFixed(1)} ${this.to_y(ys[i]).toFixed(1)}`;
      is_open = true;
    };
    const is_gap = (i) => ys[i] === null || ys[i] === undefined || (this.is_log && ys[i] <= 0);
    const is_dense = end - begin > 2 * this.width;
    for (let i = begin; i < end;) {
      if (is_gap(i)) { is_open = false; ++i; continue; }
      if (!is_dense) { point(i++); continue; }
      const column = Math.floor(this.to_x(xs[i]));
      let low = i, high = i, last = i;
      for (let k = i + 1; k < end && !is_gap(k) && Math.floor(this.to_x(xs[k])) === column; ++k) {
        if (ys[k] < ys[low]) low = k;
        if (ys[k] > ys[high]) high = k;
        last = k;
      }
      [...new Set([i, Math.min(low, high), Math.max(low, high), last])].forEach(point);
      i = last + 1;
    }
    return out;
  }

  draw_line(series, index) {
    const [begin, end] = this.visible(series);
    const ys = this.lines[index];
    const stroke = { fill: "none", style: `stroke: var(--c${series.color})`, "stroke-linejoin": "round" };
    if (view.smoothing > 0) draw(this.area, "path", { ...stroke, d: this.path(series.x, series.y, begin, end), "stroke-width": 1, opacity: 0.28 });
    draw(this.area, "path", { ...stroke, d: this.path(series.x, ys, begin, end), "stroke-width": 1.8, "stroke-dasharray": DASHES[series.dash || 0] });
    const is_there = (i) => (ys[i] ?? null) !== null && !(this.is_log && ys[i] <= 0);
    const are_few = end - begin <= 40;
    for (let i = begin; i < end; ++i) {
      // Of many points those that no line shows, between two gaps.
      if (!is_there(i) || (!are_few && (is_there(i - 1) || is_there(i + 1)))) continue;
      draw(this.area, "circle", { cx: this.to_x(series.x[i]).toFixed(1), cy: this.to_y(ys[i]).toFixed(1), r: end - begin < 15 ? 2.6 : 1.8, style: `fill: var(--c${series.color})` });
    }
  }

  draw_band() {
    const [low, high, middle] = this.spec.series;
    const tops = new Map(high.x.map((x, i) => [x, high.y[i]]));
    const [begin, end] = this.visible(low);
    // Where a value is missing the band ends, and another one begins behind the gap.
    const runs = [[]];
    for (let i = begin; i < end; ++i) {
      const a = low.y[i], b = tops.get(low.x[i]) ?? null;
      if (a === null || b === null || (this.is_log && (a <= 0 || b <= 0))) runs.push([]);
      else runs.at(-1).push([low.x[i], a, b]);
    }
    for (const run of runs.filter((one) => one.length)) {
      const there = run.map(([x, , b]) => `${this.to_x(x).toFixed(1)} ${this.to_y(b).toFixed(1)}`);
      const back = run.map(([x, a]) => `${this.to_x(x).toFixed(1)} ${this.to_y(a).toFixed(1)}`).reverse();
      draw(this.area, "path", { d: `M${there.concat(back).join("L")}Z`, style: `fill: var(--c${middle.color})`, opacity: 0.16 });
    }
    this.draw_line(middle, 2);
  }

  draw_stack() {
    if (!this.spec.series.length) return;
    const xs = this.spec.series[0].x, [begin, end] = this.visible(this.spec.series[0]);
    // Of more steps than half the pixels every so many-th: an area of single pixels says no more.
    const stride = Math.max(1, Math.floor((end - begin) / (this.width * 0.7)));
    const indices = [];
    for (let i = begin; i < end; i += stride) indices.push(i);
    if (indices.length && indices.at(-1) !== end - 1) indices.push(end - 1);
    let floor = indices.map(() => 0);
    for (const series of this.spec.series) {
      const top = indices.map((i, k) => floor[k] + (series.y[i] || 0));
      const there = indices.map((i, k) => `${this.to_x(xs[i]).toFixed(1)} ${this.to_y(top[k]).toFixed(1)}`);
      const back = indices.map((i, k) => `${this.to_x(xs[i]).toFixed(1)} ${this.to_y(floor[k]).toFixed(1)}`).reverse();
      draw(this.area, "path", { d: `M${there.concat(back).join("L")}Z`, style: `fill: var(--c${series.color})`, opacity: 0.78 });
      floor = top;
    }
  }

  /** Index of the point nearest to the cursor, or of the last one. */
  nearest(series) {
    if (view.cursor === null) return series.y.findLastIndex((y) => y !== null);
    const at = lower_bound(series.x, view.cursor);
    let before = at - 1, after = at;
    while (before >= 0 && series.y[before] === null) --before;
    while (after < series.x.length && series.y[after] === null) ++after;
    if (after >= series.x.length) return before;
    if (before < 0) return after;
    return series.x[after] - view.cursor < view.cursor - series.x[before] ? after : before;
  }

  move_cursor() {
    if (!this.lines) return;
    const at = this.spec.series.map((series) => this.nearest(series));
    const shown = `${at.join()}/${view.cursor === null}`;
    if (shown === this.shown_at) return;
    this.shown_at = shown;
    const [low, high] = this.range();
    const marks = [];
    let x = null;
    this.spec.series.forEach((series, k) => {
      const value = at[k] < 0 ? null : this.lines[k][at[k]];
      this.keys[k].textContent = number_text(value);
      if (at[k] < 0) return;
      const own = series.x[at[k]];
      if (x === null || (view.cursor !== null && Math.abs(own - view.cursor) < Math.abs(x - view.cursor))) x = own;
      if (view.cursor === null || this.spec.kind === "stack" || own < low || own > high || (this.is_log && value <= 0)) return;
      marks.push([own, value, series.color]);
    });
    this.overlay.replaceChildren();
    if (view.cursor !== null && x !== null && x >= low && x <= high) {
      draw(this.overlay, "line", { class: "cursor", x1: this.to_x(x), x2: this.to_x(x), y1: TOP, y2: HEIGHT - BOTTOM });
    }
    for (const [own, value, color] of marks) draw(this.overlay, "circle", { cx: this.to_x(own), cy: this.to_y(value), r: 3.4, style: `fill: var(--c${color}); stroke: var(--card)`, "stroke-width": 1.5 });
    const value = this.spec.series.length === 1 ? this.keys[0].textContent : "";
    this.reading.replaceChildren(view.cursor === null || x === null ? "" : `${view.axis === "time" ? "" : "step "}${x_text(x)} `, make("b", { text: value }));
  }

  /** Hover moves the cursor, dragging zooms, a double click shows everything, a click picks the step's rollouts. */
  listen() {
    let begin = null, brush = null;
    this.brushes = document.createElementNS(SVG, "svg");
    this.brushes.setAttribute("class", "overlay");
    this.brushes.setAttribute("height", HEIGHT);
    this.brushes.setAttribute("aria-hidden", "true");
    this.overlay.after(this.brushes);
    const position = (event) => event.clientX - this.svg.getBoundingClientRect().left;
    this.svg.addEventListener("pointermove", (event) => {
      const x = Math.min(Math.max(position(event), LEFT), this.width - RIGHT);
      set_cursor(this.from_x(x));
      if (begin === null) return;
      if (!brush?.isConnected) brush = draw(this.brushes, "rect", { class: "brush", y: TOP, height: HEIGHT - TOP - BOTTOM });
      brush.setAttribute("x", Math.min(x, begin));
      brush.setAttribute("width", Math.abs(x - begin));
    });
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button !== 0) return;
      begin = position(event);
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointerup", (event) => {
      if (begin === null) return;
      const [from, to] = [begin, position(event)].sort((a, b) => a - b).map((x) => this.from_x(x));
      const dragged = Math.abs(position(event) - begin) > 6;
      begin = null;
      if (brush) brush.remove();
      brush = null;
      if (dragged) this.zoom(from, to);
      else document.dispatchEvent(new CustomEvent("pickstep", { detail: from }));
    });
    this.svg.addEventListener("dblclick", () => set_range(null));
    this.svg.addEventListener("pointerleave", () => set_cursor(null));
    this.svg.addEventListener("blur", () => set_cursor(null));
    this.svg.addEventListener("keydown", (event) => this.press(event));
  }

  zoom(from, to) {
    const [low, high] = view.full;
    const range = [Math.max(low, from), Math.min(high, to)];
    if (!(range[1] > range[0])) return;
    set_range(range[0] <= low && range[1] >= high ? null : range);
  }

  press(event) {
    const [low, high] = this.range(), width = high - low;
    const at = view.cursor ?? high;
    const step = view.axis === "time" ? width / 100 : Math.max(1, Math.round(width / 100));
    const zoom = (factor) => this.zoom(at - (at - low) * factor, at + (high - at) * factor);
    const actions = {
      ArrowLeft: () => set_cursor(Math.max(low, at - step)),
      ArrowRight: () => set_cursor(Math.min(high, at + step)),
      Home: () => set_cursor(low),
      End: () => set_cursor(high),
      "+": () => zoom(0.6),
      "=": () => zoom(0.6),
      "-": () => zoom(1 / 0.6),
      "0": () => set_range(null),
      Enter: () => document.dispatchEvent(new CustomEvent("pickstep", { detail: at })),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  }
}
