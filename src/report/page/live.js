// The page of `slime view`: what ties runs, charts and address together.

import { AlarmsPanel } from "./alarms.js";
import { Charts } from "./charts.js";
import { Feed, ask } from "./feed.js";
import { GroupPanel } from "./group.js";
import { RunList, chosen_runs } from "./run_list.js";
import { SamplesPanel } from "./samples.js";
import { SettingsPanel } from "./settings.js";
import { build_lanes } from "./lanes.js";
import { change, link_to, state } from "./state.js";
import { make, theme_button } from "./dom.js";
import { redraw_all, set_range, view } from "./plots.js";

const TABS = [["charts", "Charts"], ["samples", "Samples"], ["group", "Groups"], ["alarms", "Alarms"], ["settings", "Settings"]];

const feed = new Feed();
const panel = document.getElementById("panel");

/** Charts with their toolbar. */
class ChartsPanel {
  constructor() {
    this.smooth = make("input", { type: "range", min: 0, max: 0.98, step: 0.02, "aria-label": "Smoothing",
      oninput: () => change({ smooth: Number(this.smooth.value) > 0 ? this.smooth.value : "" }) });
    this.amount = make("span", { class: "amount" });
    this.axis = ["step", "time"].map((value) => make("button", { value, text: value, onclick: () => change({ axis: value, range: "" }) }));
    this.log = make("button", { text: "log", title: "Logarithmic y axis", onclick: () => change({ log: state.log ? "" : "1" }) });
    this.all = make("button", { text: "Show all", onclick: () => set_range(null) });
    this.plots = make("div", {});
    this.element = make("section", { "aria-label": "Charts" }, make("div", { class: "toolbar", role: "toolbar", "aria-label": "Plot controls" },
      make("label", {}, "Smoothing", this.smooth, this.amount),
      make("span", { class: "segmented", role: "group", "aria-label": "Axis of x" }, ...this.axis), this.log, this.all,
      make("span", { class: "hint", text: "Drag to zoom, double-click for all, click to see a step's samples" })), this.plots);
    this.lanes = make("div", {});
    this.timeline = make("details", { class: "rest", ontoggle: () => this.show_timeline() }, make("summary", {}, make("h2", { text: "Who did what when" })), this.lanes);
    this.element.append(this.timeline);
    this.charts = new Charts(this.plots);
    this.drawn = "";
  }

  /** Of the newest run that is shown. */
  async show_timeline() {
    const run = [...feed.followed.keys()].at(-1);
    const is_fresh = run === this.timeline_run && performance.now() < this.timeline_due;
    if (!this.timeline.open || !run || is_fresh) return;
    [this.timeline_run, this.timeline_due] = [run, performance.now() + 5000];
    const timeline = await ask("/api/timeline", { run }).catch(() => null);
    this.lanes.replaceChildren();
    if (timeline?.lanes?.length) build_lanes(this.lanes, timeline);
    else this.lanes.append(make("div", { class: "card empty", text: `${run} has no timeline yet.` }));
  }

  /** Takes the state of the address; draws what has changed. */
  show() {
    view.smoothing = Number(state.smooth) || 0;
    view.axis = state.axis === "time" ? "time" : "step";
    view.is_log = state.log === "1";
    const range = state.range.split("~").map(Number);
    view.range = range.length === 2 && range.every(Number.isFinite) && range[1] > range[0] ? range : null;
    this.smooth.value = view.smoothing;
    this.amount.textContent = view.smoothing > 0 ? view.smoothing.toFixed(2) : "off";
    for (const button of this.axis) button.setAttribute("aria-pressed", String(button.value === view.axis));
    this.log.setAttribute("aria-pressed", String(view.is_log));
    this.all.disabled = view.range === null;
    const runs = [...feed.followed.values()];
    const drawn = JSON.stringify([view.axis, runs.map((run) => [run.id, run.version])]);
    if (drawn === this.drawn) return redraw_all();
    this.drawn = drawn;
    this.show_timeline();
    this.charts.show(runs.map((run) => ({ label: run.label, color: run.color, metrics: run.metrics, to_x: view.axis === "time" ? (steps) => run.seconds(steps) : (steps) => steps })));
  }
}

const panels = { charts: new ChartsPanel(), samples: new SamplesPanel(feed), group: new GroupPanel(feed), alarms: new AlarmsPanel(feed), settings: new SettingsPanel(feed) };

const tabs = make("nav", { class: "tabs", "aria-label": "Views" }, ...TABS.map(([tab, text]) => make("a", { "data-tab": tab }, text, tab === "alarms" ? make("span", { class: "badge" }) : null)));
const status = make("span", { class: "live-state", role: "status" });
document.getElementById("header").append(make("div", { class: "title-row" }, make("h1", { text: "slime" }), tabs, status, theme_button()));
const runs = new RunList(document.getElementById("runs"), feed);

function show() {
  const tab = panels[state.tab] ? state.tab : "charts";
  for (const link of tabs.children) {
    link.href = link_to({ tab: link.dataset.tab });
    if (link.dataset.tab === tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (panel.firstChild !== panels[tab].element) panel.replaceChildren(panels[tab].element);
  panels[tab].show();
}

function show_status() {
  const are_running = feed.list.filter((run) => run.state === "running").length;
  status.className = `live-state ${feed.is_connected ? (are_running ? "on" : "") : "off"}`;
  status.textContent = feed.is_connected ? (are_running ? "live" : "up to date") : "server gone, trying again";
}

function show_alarms() {
  const count = panels.alarms.num_now(), badge = tabs.querySelector(".badge");
  badge.textContent = count || "";
  badge.title = count ? `${count} now` : "";
  if (state.tab === "alarms") panels.alarms.show();
}

function show_runs() {
  runs.show();
  show_status();
}

function follow() {
  feed.follow(chosen_runs(feed.list, state.runs)).catch(show_error);
}

function show_error(error) {
  document.getElementById("banner").replaceChildren(make("div", { class: "problems", text: error.message }));
}

let is_due = false;
/** Many rows may come at once: the page is drawn once a frame. */
function soon(draw) {
  if (is_due) return;
  is_due = true;
  requestAnimationFrame(() => { is_due = false; draw(); });
}

document.addEventListener("rangechange", () => change({ range: view.range ? view.range.map((x) => +x.toPrecision(7)).join("~") : "" }));
document.addEventListener("statechange", () => { follow(); show(); });
document.addEventListener("metricschange", () => soon(() => {
  show_runs();
  show();
  show_alarms();
  panels.alarms.refresh();
  if (state.tab === "samples") panels.samples.refresh();
}));
document.addEventListener("alarmschange", show_alarms);
document.addEventListener("pickstep", (event) => {
  const run = [...feed.followed.values()].at(-1);
  if (!run) return;
  const steps = run.times.steps;
  const step = view.axis === "time" ? steps[run.seconds(steps).findIndex((seconds) => seconds >= event.detail)] ?? steps.at(-1) : Math.round(event.detail);
  change({ tab: "samples", run: run.id, step: String(Math.max(0, step)), open: "" }, true);
});
document.addEventListener("runschange", () => { follow(); show_runs(); show(); });
document.addEventListener("connectionchange", show_status);
tabs.addEventListener("click", (event) => {
  const tab = event.target.closest("[data-tab]")?.dataset.tab;
  if (!tab || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  change({ tab }, true);
});

show();
feed.start().catch(show_error);
