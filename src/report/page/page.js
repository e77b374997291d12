// The page of `slime report`: header, and what ties the page together. `report` is what slime wrote: see report/report.h.

import { Charts, RunSeries, evaluations_of, loss_of, reward_of } from "./charts.js";
import { Rollouts } from "./rollouts.js";
import { alarm_card } from "./alarm_card.js";
import { build_lanes } from "./lanes.js";
import { duration_text, make, number_text, plural, theme_button } from "./dom.js";
import { redraw_all, set_range, view } from "./plots.js";

const report = JSON.parse(document.getElementById("data").textContent);

const run = { label: report.name, color: 0, metrics: report.metrics, to_x: (steps) => steps };
const shown = new RunSeries(run);
const reward = reward_of(shown);
const evaluations = evaluations_of(shown);
const loss = loss_of(shown);

/** Mean of the first and of the last few values: single steps are noisy. */
function ends(one, few) {
  const values = one.y.filter((value) => value !== null);
  const mean = (part) => part.reduce((a, b) => a + b, 0) / part.length;
  const width = Math.max(1, Math.min(few, Math.floor(values.length / 4)));
  return values.length ? [mean(values.slice(0, width)), mean(values.slice(-width))] : null;
}

function figure(name, value, note, direction) {
  return make("div", { class: "figure" }, make("div", { class: "name", text: name, title: name }), make("div", { class: "value", text: value }),
    make("div", { class: `note ${direction || ""}`, text: note || "\u00a0" }));
}

function change_figure(name, one, few) {
  const pair = one && ends(one, few);
  if (!pair) return null;
  const [from, to] = pair;
  const direction = to > from + 1e-9 ? "up" : to < from - 1e-9 ? "down" : "";
  return figure(name, number_text(to), `from ${number_text(from)}`, direction);
}

function build_header() {
  const header = document.getElementById("header");
  const parts = [report.model, report.algorithm, report.begin ? new Date(report.begin * 1000).toLocaleString() : null].filter(Boolean);
  header.append(make("div", { class: "title-row" }, make("div", {}, make("h1", { text: report.name }), make("div", { class: "subtitle", text: parts.join("  \u00b7  ") })), theme_button()));
  const speed = shown.series("", 0, "perf/tokens_per_gpu_per_sec", "rollout/tokens_per_second");
  const figures = make("div", { class: "figures" }, change_figure("Reward", reward, 4),
    ...evaluations.slice(0, 2).map((one) => change_figure(`Evaluation: ${one.label}`, one, 1)),
    reward ? null : change_figure("Loss", loss, 4),
    figure("Steps", report.num_steps.toLocaleString("en-US"), report.planned_steps ? `of ${report.planned_steps.toLocaleString("en-US")}` : ""),
    speed && ends(speed, 8) ? figure("Generation", number_text(ends(speed, 8)[1]), "tokens per second") : null,
    report.seconds > 0 ? figure("Time", duration_text(report.seconds), `${(report.seconds / Math.max(report.num_steps, 1)).toFixed(2)} s per step`) : null);
  header.append(figures);
  if (report.flags.length) {
    const list = make("div", { class: "flag-list" }, ...report.flags.map(([name, value]) =>
      make("div", {}, make("code", { text: name }), make("span", { class: "mono", text: value }))));
    header.append(make("details", { class: "flags" }, make("summary", { text: plural(report.flags.length, "setting") }), list));
  }
}

function build_toolbar() {
  const slider = make("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: 0, "aria-label": "Smoothing",
    oninput: () => { view.smoothing = Number(slider.value); amount.textContent = slider.value > 0 ? Number(slider.value).toFixed(2) : "off"; redraw_all(); } });
  const amount = make("span", { text: "off" });
  const reset = make("button", { text: "Show all steps", onclick: () => set_range(null), disabled: "" });
  document.addEventListener("rangechange", () => { reset.disabled = view.range === null; });
  document.getElementById("toolbar").append(make("label", {}, "Smoothing", slider, amount), reset,
    make("span", { class: "hint", text: "Drag to zoom, double-click for all, click to see a step's rollouts" }));
}

function build_problems() {
  if (!report.problems.length) return;
  document.getElementById("problems").append(make("div", { class: "problems" }, "Parts of this run are not on the page:",
    make("ul", {}, ...report.problems.map((text) => make("li", { text })))));
}

function build_alarms() {
  const show = (alarm) => make("button", { text: `Samples of step ${alarm.last_step}`, onclick: () => document.dispatchEvent(new CustomEvent("pickstep", { detail: alarm.last_step })) });
  const cards = report.alarms.map((alarm) => alarm_card(alarm, null, ...(report.rollouts.length ? [show(alarm)] : [])));
  if (cards.length) document.getElementById("problems").append(make("div", { class: "alarms" }, ...cards));
}

build_header();
build_toolbar();
build_problems();
build_alarms();
new Charts(document.getElementById("plots")).show([run]);
build_lanes(document.getElementById("lanes"), report.timeline);
new Rollouts(document.getElementById("rollouts"), report.rollouts);
