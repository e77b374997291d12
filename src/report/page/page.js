"use strict";
// Header, choice of plots, and what ties the page together. `report` is what slime wrote: see view/report.h.

const report = JSON.parse(document.getElementById("data").textContent);

const metric_names = Object.keys(report.metrics);
const used = new Set();

/** The first of `names` that the run has, as a series. A name may be a regular expression. */
function series(label, color, ...names) {
  for (const name of names) {
    const found = name instanceof RegExp ? metric_names.find((one) => name.test(one)) : report.metrics[name] && name;
    if (!found) continue;
    used.add(found);
    return { label, color, x: report.metrics[found].steps, y: report.metrics[found].values };
  }
  return null;
}

/** One series per metric that matches; the label is what the pattern's group caught. */
function family(pattern, limit = 8) {
  return metric_names.filter((name) => pattern.test(name)).slice(0, limit).map((name, i) => series(name.match(pattern)[1], i % 8, name));
}

function some(...list) { return list.filter((one) => one !== null); }

/** Stacked series need a value at each step of any of them. */
function aligned(list) {
  const steps = [...new Set(list.flatMap((one) => one.x))].sort((a, b) => a - b);
  return list.map((one) => {
    const at = new Map(one.x.map((x, i) => [x, one.y[i]]));
    return { ...one, x: steps, y: steps.map((x) => at.get(x) ?? 0) };
  });
}

const reward = series("reward", 0, "rollout/raw_reward", "rollout/reward/mean", "rollout/rewards", "rollout/reward");
const evaluations = family(/^eval\/((?:(?!-truncated_ratio$|-failed$|-too_long$|-pass@\d+$)[^/])+)$/);
const loss = series("loss", 3, "train/loss");
const phases = family(/^phase\/(.+?)(?:_seconds)?$/);
const phase_times = phases.length ? phases : family(/^perf\/(rollout|data_preprocess|log_probs|ref_log_probs|actor_train|update_weights|save_model|eval)_time$/);

const sections = [
  ["Learning", [
    { title: "Reward", series: some(reward), floor: 0, ceiling: 1 },
    { title: "Evaluation", series: evaluations, floor: 0, ceiling: 1 },
    { title: "Loss", series: some(loss) },
    { title: "KL divergence", unit: "nats", series: some(series("reference", 0, "train/kl_loss", "rollout/kl"), series("update", 1, "train/ppo_kl")) },
    { title: "Entropy", unit: "nats", series: some(series("entropy", 4, "train/entropy_loss", "train/entropy", "rollout/entropy")), floor: 0 },
    { title: "Groups with one reward only", series: family(/^rollout\/zero_std\/count_(.+)$/, 4) },
  ]],
  ["Policy", [
    { title: "Response length", kind: "band", unit: "tokens", floor: 0, series: some(series("min", 7, "rollout/response_len/min"),
      series("max", 6, "rollout/response_len/max"), series("mean", 0, "rollout/response_len/mean", "rollout/response_lengths")) },
    { title: "Truncated responses", series: some(series("share", 1, "rollout/truncated_ratio", "rollout/truncated")), floor: 0, ceiling: 1 },
    { title: "Rollout \u2212 trainer log-prob", unit: "nats", series: some(series("mean", 3, "train/train_rollout_logprob_abs_diff"), series("max", 7, "train/train_rollout_logprob_abs_diff_max")), floor: 0 },
    { title: "Clipped tokens", series: some(series("share", 5, "train/pg_clipfrac", "train/clip_fraction")), floor: 0 },
    { title: "Gradient norm", series: some(series("norm", 2, "train/grad_norm")), floor: 0 },
    { title: "Learning rate", series: some(series("lr", 4, "train/lr", /^train\/lr-pg_\d+$/)), floor: 0 },
  ]],
  ["Asynchrony", [
    { title: "Staleness of tokens", unit: "updates", floor: 0, series: some(series("mean", 0, "rollout/weight_version/lag_mean"),
      series("max", 7, "rollout/weight_version/lag_max"), series("at admission", 3, "rollout/weight_version/lag_admission_mean")) },
    { title: "Tokens by staleness", kind: "stack", unit: "share", series: aligned(family(/^rollout\/weight_version\/lag_share\/(.+)$/)) },
    { title: "Groups behind a step", floor: 0, series: some(series("finished, waiting", 1, "rollout/queue/finished_groups"),
      series("under way", 4, "rollout/queue/open_groups")) },
    { title: "Who waited", unit: "s", floor: 0, series: some(series("trainer for groups", 0, "perf/wait_groups_time"),
      series("engine idle", 1, "perf/engine_idle_time"), series("engine paused", 7, "perf/engine_paused_time"),
      series("queue full", 2, "perf/queue_full_time"), series("update", 3, "perf/update_hold_time"), series("lease", 4, "perf/lease_time")) },
    { title: "Samples in the engine", floor: 0, series: some(series("running", 0, "rollout/engine/running_samples"), series("waiting", 3, "rollout/engine/waiting_samples")) },
    { title: "Updates behind at an evaluation's end", floor: 0, series: some(series("lag", 5, "eval/weight_version/lag")) },
  ]],
  ["Speed", [
    { title: "Time per step", kind: "stack", unit: "s", series: aligned(phase_times) },
    { title: "Generation", unit: "tok/s", series: some(series("tokens", 0, "perf/tokens_per_gpu_per_sec", "rollout/tokens_per_second")), floor: 0 },
    { title: "Training", unit: "tok/s", series: some(series("tokens", 1, "perf/train_tokens_per_sec", "perf/actor_train_tok_per_s", "train/tokens_per_second")), floor: 0 },
  ]],
];

function all_steps() {
  let low = Infinity, high = -Infinity;
  for (const { steps } of Object.values(report.metrics)) {
    if (steps.length) { low = Math.min(low, steps[0]); high = Math.max(high, steps.at(-1)); }
  }
  return low <= high ? [low, high === low ? low + 1 : high] : [0, 1];
}

function duration_text(seconds) {
  const whole = Math.round(seconds);
  const pad = (n) => String(n).padStart(2, "0");
  return whole >= 3600 ? `${Math.floor(whole / 3600)}:${pad(Math.floor(whole / 60) % 60)}:${pad(whole % 60)}` : `${Math.floor(whole / 60)}:${pad(whole % 60)}`;
}

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
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set_theme = (is_dark) => { document.documentElement.dataset.theme = is_dark ? "dark" : "light"; };
  set_theme(dark.matches);
  dark.addEventListener("change", () => set_theme(dark.matches));
  const toggle = make("button", { text: "\u25d0", title: "Light or dark", "aria-label": "Light or dark",
    onclick: () => set_theme(document.documentElement.dataset.theme !== "dark") });
  const header = document.getElementById("header");
  const parts = [report.model, report.algorithm, report.begin ? new Date(report.begin * 1000).toLocaleString() : null].filter(Boolean);
  header.append(make("div", { class: "title-row" }, make("div", {}, make("h1", { text: report.name }), make("div", { class: "subtitle", text: parts.join("  \u00b7  ") })), toggle));
  const speed = series("", 0, "perf/tokens_per_gpu_per_sec", "rollout/tokens_per_second");
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
    oninput: () => { view.smoothing = Number(slider.value); amount.textContent = slider.value > 0 ? Number(slider.value).toFixed(2) : "off"; view.plots.forEach((plot) => plot.redraw()); } });
  const amount = make("span", { text: "off" });
  const reset = make("button", { text: "Show all steps", onclick: () => set_range(null), disabled: "" });
  document.addEventListener("rangechange", () => { reset.disabled = view.range === null; });
  document.getElementById("toolbar").append(make("label", {}, "Smoothing", slider, amount), reset,
    make("span", { class: "hint", text: "Drag to zoom, double-click for all, click to see a step's rollouts" }));
}

function build_plots() {
  view.full = all_steps();
  const parent = document.getElementById("plots");
  const add = (title, specs, open) => {
    const there = specs.filter((spec) => spec.series.some((one) => one.y.some((value) => value !== null)));
    if (!there.length) return;
    const plots = there.map((spec) => new Plot(spec.kind === "band" && spec.series.length < 3 ? { ...spec, kind: "line" } : spec));
    view.plots.push(...plots);
    const grid = make("div", { class: "grid" }, ...plots.map((plot) => plot.element));
    if (open) parent.append(make("h2", { text: title }), grid);
    else parent.append(make("details", {}, make("summary", {}, make("h2", { text: title, style: "display: inline-block" })), grid));
  };
  for (const [title, specs] of sections) add(title, specs, true);
  const rest = metric_names.filter((name) => !used.has(name)).sort();
  add(plural(rest.length, "more metric"), rest.map((name) => ({ title: name, series: [series(name, 7, name)] })), false);
  if (!metric_names.length) parent.append(make("div", { class: "card empty", text: "This run has no metrics yet." }));
}

function build_problems() {
  if (!report.problems.length) return;
  document.getElementById("problems").append(make("div", { class: "problems" }, "Parts of this run are not on the page:",
    make("ul", {}, ...report.problems.map((text) => make("li", { text })))));
}

build_header();
build_toolbar();
build_problems();
build_plots();
build_lanes(document.getElementById("lanes"), report.timeline);
new Rollouts(document.getElementById("rollouts"), report.rollouts);
