// Who did what over time: a row per lane, the whole run in bins above, the last steps phase by phase below.

import { SVG, draw, duration_text, make, ticks } from "./dom.js";

const LANE_HEIGHT = 30, LANE_GAP = 8, LANE_LEFT = 84, LANE_RIGHT = 74;
const LANE_NAMES = { rollout: "held back" };
// One color for one meaning in all lanes: drawing, training, scoring, waiting, moving.
const PHASE_COLORS = { generate: 0, train: 1, score: 2, evaluate: 5, wait: 7, paused: 7, publish: 3, update: 3, save: 4, lease: 4, record: 6, "queue full": 6, read: 0 };

/** Phases in which a lane does nothing itself. */
const WAITING = new Set(["wait", "paused"]);

/** The share of `total` seconds in which a lane did nothing or waited; what holds the rollout back is no work at all. */
function idle_text(lane, spans, total) {
  if (lane === "rollout") return "";
  const busy = spans.reduce((sum, [name, seconds]) => sum + (WAITING.has(name) ? 0 : seconds), 0);
  return `idle ${share_text(Math.max(0, 1 - busy / total))}`;
}

function phase_color(name) { return `var(--c${PHASE_COLORS[name] ?? 7})`; }
function seconds_text(seconds) { return seconds >= 120 ? duration_text(seconds) : `${seconds >= 10 ? seconds.toFixed(1) : seconds.toFixed(2)} s`; }
function share_text(share) { return `${share >= 0.0995 ? Math.round(share * 100) : (share * 100).toFixed(1)} %`; }

/** Seconds as round numbers along the bottom. */
function draw_time(svg, seconds, width, height) {
  const end = width - LANE_RIGHT;
  for (const time of ticks(0, seconds, Math.max(2, Math.floor((end - LANE_LEFT) / 110)))) {
    const x = LANE_LEFT + time / seconds * (end - LANE_LEFT);
    draw(svg, "line", { class: "gridline", x1: x, x2: x, y1: 0, y2: height - 18 });
    draw(svg, "text", { x, y: height - 4, "text-anchor": "middle" }, seconds >= 120 ? duration_text(time) : `${+time.toPrecision(4)} s`);
  }
}

/** A card whose picture is drawn again when its width changes. `fill(svg, width, height)`. */
function lane_card(title, note, rows, fill) {
  const svg = document.createElementNS(SVG, "svg");
  const height = rows * (LANE_HEIGHT + LANE_GAP) + 20;
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", title);
  const redraw = () => {
    if (!svg.clientWidth) return;
    svg.replaceChildren();
    fill(svg, svg.clientWidth, height);
  };
  new ResizeObserver(redraw).observe(svg);
  return make("div", { class: "card lanes" }, make("div", { class: "card-head" }, make("span", { class: "name", text: title }), make("span", { class: "reading", text: note })), svg);
}

function draw_lane_frame(svg, lane, row, width, label) {
  const y = row * (LANE_HEIGHT + LANE_GAP);
  draw(svg, "rect", { class: "lane", x: LANE_LEFT, y, width: Math.max(0, width - LANE_LEFT - LANE_RIGHT), height: LANE_HEIGHT, rx: 3 });
  draw(svg, "text", { class: "lane-name", x: LANE_LEFT - 10, y: y + LANE_HEIGHT / 2 + 4, "text-anchor": "end" }, LANE_NAMES[lane] || lane);
  if (label) draw(svg, "text", { x: width - LANE_RIGHT + 8, y: y + LANE_HEIGHT / 2 + 4 }, label);
  return y;
}

/** Bins: of each, the share of its time that a phase took, stacked. */
function draw_bins(svg, timeline, width, height) {
  draw_time(svg, timeline.seconds, width, height);
  timeline.lanes.forEach((lane, row) => {
    const y = draw_lane_frame(svg, lane.name, row, width, idle_text(lane.name, lane.phases.map((phase) => [phase.name, phase.seconds]), timeline.seconds));
    const count = lane.phases[0].bins.length, step = (width - LANE_LEFT - LANE_RIGHT) / count;
    const floor = new Array(count).fill(0);
    for (const phase of lane.phases) {
      let path = "";
      phase.bins.forEach((share, i) => {
        const part = Math.min(share, 1 - floor[i]) * LANE_HEIGHT;
        if (part > 0.2) path += `M${(LANE_LEFT + i * step).toFixed(1)} ${(y + LANE_HEIGHT - floor[i] * LANE_HEIGHT).toFixed(1)}v${(-part).toFixed(1)}h${(step + 0.15).toFixed(2)}v${part.toFixed(1)}z`;
        floor[i] = Math.min(1, floor[i] + share);
      });
      const shape = draw(svg, "path", { d: path, style: `fill: ${phase_color(phase.name)}` });
      draw(shape, "title", {}, `${LANE_NAMES[lane.name] || lane.name}: ${phase.name}, ${seconds_text(phase.seconds)}, ${share_text(phase.seconds / timeline.seconds)}`);
    }
  });
}

function draw_window(svg, timeline, width, height) {
  const { window, lanes } = timeline;
  draw_time(svg, window.seconds, width, height);
  const scale = (width - LANE_LEFT - LANE_RIGHT) / window.seconds;
  window.lanes.forEach((lane, row) => {
    const phases = lanes.find((one) => one.name === lane.name).phases;
    const y = draw_lane_frame(svg, lane.name, row, width, idle_text(lane.name, lane.spans.map(([phase, , seconds]) => [phases[phase].name, seconds]), window.seconds));
    for (const [phase, begin, seconds] of lane.spans) {
      const box = draw(svg, "rect", { x: LANE_LEFT + begin * scale, y, width: Math.max(0.4, seconds * scale), height: LANE_HEIGHT, style: `fill: ${phase_color(phases[phase].name)}` });
      draw(box, "title", {}, `${LANE_NAMES[lane.name] || lane.name}: ${phases[phase].name}, ${seconds_text(seconds)}`);
    }
  });
  const bottom = timeline.lanes.length * (LANE_HEIGHT + LANE_GAP) - LANE_GAP;
  for (const [step, time] of window.ends) {
    const line = draw(svg, "line", { class: "step-end", x1: LANE_LEFT + time * scale, x2: LANE_LEFT + time * scale, y1: 0, y2: bottom });
    draw(line, "title", {}, `step ${step} ends`);
  }
}

export function build_lanes(parent, timeline) {
  if (!timeline || !timeline.lanes || !timeline.lanes.length) return;
  const names = [...new Set(timeline.lanes.flatMap((lane) => lane.phases.map((phase) => phase.name)))];
  const legend = make("div", { class: "legend" }, ...names.map((name) => make("span", { class: "key" }, make("i", { style: `background: ${phase_color(name)}` }), name)));
  const rows = timeline.lanes.length, { window } = timeline;
  const last = window.ends.map(([step]) => step);
  const few = last.at(-1) === last[0] ? "The last step" : `Steps ${last[0]} to ${last.at(-1)}, phase by phase`;
  parent.append(make("h2", { text: "Who did what when" }), legend,
    lane_card("The whole run", `${seconds_text(timeline.seconds)}, steps ${timeline.steps[0]} to ${timeline.steps[1]}`, rows, (svg, width, height) => draw_bins(svg, timeline, width, height)),
    ...(window.seconds > 0 ? [lane_card(few, seconds_text(window.seconds), rows, (svg, width, height) => draw_window(svg, timeline, width, height))] : []));
}
