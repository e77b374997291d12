// The choice of plots: which metrics share a card, and how several runs lie over one another.

import { Plot, redraw_all, view } from "./plots.js";
import { make, plural } from "./dom.js";

const some = (...list) => list.filter((one) => one !== null);

/** Series of one run under the names that a chart asks for. `run`: { metrics, to_x }; to_x maps steps to x. */
export class RunSeries {
  constructor(run) {
    this.run = run;
    this.names = Object.keys(run.metrics);
    this.used = new Set();
  }

  /** The first of `names` that the run has. A name may be a regular expression. */
  series(label, color, ...names) {
    for (const name of names) {
      const found = name instanceof RegExp ? this.names.find((one) => name.test(one)) : this.run.metrics[name] && name;
      if (!found) continue;
      this.used.add(found);
      const { steps, values } = this.run.metrics[found];
      return { label, color, x: this.run.to_x(steps), y: values };
    }
    return null;
  }

  /** One series per metric that matches; the label is what the pattern's group caught. */
  family(pattern, limit = 8) {
    return this.names.filter((name) => pattern.test(name)).slice(0, limit).map((name, i) => this.series(name.match(pattern)[1], i % 8, name));
  }
}

/** Stacked series need a value at each step of any of them. */
function aligned(list) {
  const steps = [...new Set(list.flatMap((one) => one.x))].sort((a, b) => a - b);
  return list.map((one) => {
    const at = new Map(one.x.map((x, i) => [x, one.y[i]]));
    return { ...one, x: steps, y: steps.map((x) => at.get(x) ?? 0) };
  });
}

export function reward_of(run) { return run.series("reward", 0, "rollout/raw_reward", "rollout/reward/mean", "rollout/rewards", "rollout/reward"); }
export function evaluations_of(run) { return run.family(/^eval\/((?:(?!-truncated_ratio$|-failed$|-too_long$|-pass@\d+$)[^/])+)$/); }
export function loss_of(run) { return run.series("loss", 3, "train/loss"); }

/** [[section, [spec, ...]], ...] of one run (plots.js has the specs). */
function sections_of(run) {
  const series = (...words) => run.series(...words);
  const phases = run.family(/^phase\/(.+?)(?:_seconds)?$/);
  const phase_times = phases.length ? phases : run.family(/^perf\/(rollout|data_preprocess|log_probs|ref_log_probs|actor_train|update_weights|save_model|eval)_time$/);
  return [
    ["Learning", [
      { title: "Reward", series: some(reward_of(run)), floor: 0, ceiling: 1 },
      { title: "Evaluation", series: evaluations_of(run), floor: 0, ceiling: 1 },
      { title: "Loss", series: some(loss_of(run)) },
      { title: "KL divergence", unit: "nats", series: some(series("reference", 0, "train/kl_loss", "rollout/kl"), series("update", 1, "train/ppo_kl")) },
      { title: "Entropy", unit: "nats", series: some(series("entropy", 4, "train/entropy_loss", "train/entropy", "rollout/entropy")), floor: 0 },
      { title: "Groups with one reward only", series: run.family(/^rollout\/zero_std\/count_(.+)$/, 4), floor: 0 },
    ]],
    ["Policy", [
      { title: "Response length", kind: "band", unit: "tokens", floor: 0, series: some(series("min", 7, "rollout/response_len/min"),
        series("max", 6, "rollout/response_len/max"), series("mean", 0, "rollout/response_len/mean", "rollout/response_lengths")) },
      { title: "Truncated responses", series: some(series("share", 1, "rollout/truncated_ratio", "rollout/truncated")), floor: 0, ceiling: 1 },
      { title: "Repeated text", series: some(series("share", 6, "rollout/repetition_frac")), floor: 0 },
      { title: "Rollout \u2212 trainer log-prob", unit: "nats", series: some(series("mean", 3, "train/train_rollout_logprob_abs_diff"), series("max", 7, "train/train_rollout_logprob_abs_diff_max")), floor: 0 },
      { title: "Clipped tokens", series: some(series("share", 5, "train/pg_clipfrac", "train/clip_fraction")), floor: 0 },
      { title: "Gradient norm", series: some(series("norm", 2, "train/grad_norm")), floor: 0 },
      { title: "Learning rate", series: some(series("lr", 4, "train/lr", /^train\/lr-pg_\d+$/)), floor: 0 },
    ]],
    ["Asynchrony", [
      { title: "Staleness of tokens", unit: "updates", floor: 0, series: some(series("mean", 0, "rollout/weight_version/lag_mean"),
        series("max", 7, "rollout/weight_version/lag_max"), series("at admission", 3, "rollout/weight_version/lag_admission_mean")) },
      { title: "Tokens by staleness", kind: "stack", unit: "share", series: aligned(run.family(/^rollout\/weight_version\/lag_share\/(.+)$/)) },
      { title: "Groups waiting for a step", floor: 0, series: some(series("finished, waiting", 1, "rollout/queue/finished_groups"),
        series("under way", 4, "rollout/queue/open_groups")) },
      { title: "Who waited", unit: "s", floor: 0, series: some(series("trainer for groups", 0, "perf/wait_groups_time"),
        series("engine idle", 1, "perf/engine_idle_time"), series("engine paused", 7, "perf/engine_paused_time"),
        series("queue full", 2, "perf/queue_full_time"), series("update", 3, "perf/update_hold_time"), series("lease", 4, "perf/lease_time")) },
      { title: "Samples in the engine", floor: 0, series: some(series("running", 0, "rollout/engine/running_samples"), series("waiting", 3, "rollout/engine/waiting_samples")) },
      { title: "Updates since an evaluation began", floor: 0, series: some(series("lag", 5, "eval/weight_version/lag")) },
    ]],
    ["Speed", [
      { title: "Time per step", kind: "stack", unit: "s", series: aligned(phase_times) },
      { title: "Generation", unit: "tok/s", series: some(series("tokens", 0, "perf/tokens_per_gpu_per_sec", "rollout/tokens_per_second")), floor: 0 },
      { title: "Training", unit: "tok/s", series: some(series("tokens", 1, "perf/train_tokens_per_sec", "perf/actor_train_tok_per_s", "train/tokens_per_second")), floor: 0 },
    ]],
  ];
}

/** A band of one run; of runs without all of its three lines, lines. */
function whole_band(spec) { return spec.kind === "band" && spec.series.length < 3 ? { ...spec, kind: "line" } : spec; }

/** What of a chart is drawn where several runs share it: a band's mean, a stack's sum. */
function shared_lines(spec) {
  if (spec.kind === "band" && spec.series.length === 3) return [spec.series[2]];
  if (spec.kind !== "stack" || !spec.series.length) return spec.series;
  const [first] = spec.series;
  return [{ ...first, label: "sum", y: first.x.map((_, i) => spec.series.reduce((sum, one) => sum + (one.y[i] || 0), 0)) }];
}

/** One chart of several runs: a color per run, a dash per line of the chart. */
function overlaid(specs, runs) {
  const labels = [...new Set(specs.flatMap((spec) => shared_lines(spec).map((one) => one.label)))];
  const series = specs.flatMap((spec, i) => shared_lines(spec).map((one) => ({
    ...one, color: runs[i].color, dash: labels.indexOf(one.label) % 4,
    label: labels.length > 1 ? `${runs[i].label}: ${one.label}` : runs[i].label,
  })));
  return { ...specs[0], kind: "line", series };
}

/** Sections of charts over all runs, and a section of every metric that no chart has. */
export function chart_sections(runs) {
  const readers = runs.map((run) => new RunSeries(run));
  const all = readers.map(sections_of);
  const sections = all.length ? all[0].map(([title, specs], s) => [title, specs.map((spec, k) => {
    if (runs.length === 1) return whole_band(spec);
    return overlaid(all.map((one) => one[s][1][k]), runs);
  })]) : [];
  const used = new Set(readers.flatMap((one) => [...one.used]));
  const rest = [...new Set(readers.flatMap((one) => one.names))].filter((name) => !used.has(name)).sort();
  return { sections, rest: rest.map((name) => ({ title: name, series: readers.flatMap((one, i) => {
    const found = one.series(runs[i].label, runs.length > 1 ? runs[i].color : 7, name);
    return found ? [found] : [];
  }) })) };
}

function has_values(spec) { return spec.series.some((one) => one.y.some((value) => value !== null)); }

/** All plots of a page. `show` keeps the cards that are there, so that a growing run does not flicker. */
export class Charts {
  constructor(parent) {
    this.parent = parent;
    this.plots = new Map();
    this.grids = new Map();
  }

  show(runs) {
    const low = Math.min(...runs.flatMap((run) => Object.values(run.metrics).map(({ steps }) => steps.length ? run.to_x([steps[0]])[0] : Infinity)));
    const high = Math.max(...runs.flatMap((run) => Object.values(run.metrics).map(({ steps }) => steps.length ? run.to_x([steps.at(-1)])[0] : -Infinity)));
    view.full = low <= high ? [low, high === low ? low + 1 : high] : [0, 1];
    const { sections, rest } = chart_sections(runs);
    const wanted = new Set();
    for (const [title, specs] of sections) this.fill(title, title, specs, true, wanted);
    this.fill("rest", plural(rest.length, "more metric"), rest, false, wanted);
    for (const [key, plot] of this.plots) {
      if (wanted.has(key)) continue;
      plot.element.remove();
      this.plots.delete(key);
    }
    for (const [key, { box, grid }] of this.grids) {
      if (!grid.children.length) { box.remove(); this.grids.delete(key); }
    }
    view.plots = [...this.plots.values()];
    if (!view.plots.length && !this.empty) this.parent.append(this.empty = make("div", { class: "card empty", text: "No metrics yet: the first step's come when it ends." }));
    if (view.plots.length && this.empty) { this.empty.remove(); this.empty = null; }
    redraw_all();
  }

  fill(key, title, specs, is_open, wanted) {
    const there = specs.filter(has_values);
    if (!there.length) return;
    if (!this.grids.has(key)) {
      const grid = make("div", { class: "grid" });
      const heading = make("h2", { text: title });
      const box = is_open ? make("section", { "aria-label": title }, heading, grid) : make("details", { class: "rest" }, make("summary", {}, heading), grid);
      this.grids.set(key, { box, grid, heading });
      this.parent.append(box);
    }
    const { grid, heading } = this.grids.get(key);
    heading.textContent = title;
    there.forEach((spec, i) => {
      const name = `${key}/${spec.title}`;
      wanted.add(name);
      if (this.plots.has(name)) this.plots.get(name).update(spec);
      else this.plots.set(name, new Plot(spec));
      const { element } = this.plots.get(name);
      if (grid.children[i] !== element) grid.insertBefore(element, grid.children[i] || null);
    });
  }
}
