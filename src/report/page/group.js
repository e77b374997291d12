// The samples of one prompt side by side, with rewards and advantages.

import { RunChoice } from "./samples.js";
import { ask } from "./feed.js";
import { change, link_to, state } from "./state.js";
import { make, number_text, plural } from "./dom.js";
import { color_choice, response_text, reward_pill, status_pill } from "./tokens.js";

export class GroupPanel {
  constructor(feed) {
    this.feed = feed;
    this.runs = new RunChoice(feed);
    this.step = make("input", { type: "number", min: 0, "aria-label": "Step", onchange: () => this.go_to_step(this.step.value) });
    this.before = make("button", { text: "\u2039", "aria-label": "Prompt before" });
    this.after = make("button", { text: "\u203a", "aria-label": "Next prompt" });
    this.title = make("b", {});
    this.order = ["reward", "file"].map((value) => make("button", { value, text: value === "reward" ? "by reward" : "as sampled", onclick: () => change({ sort: value === "reward" ? "" : "file" }) }));
    this.colors = make("span", {});
    this.body = make("div", {});
    this.element = make("section", { class: "group", "aria-label": "Samples of a prompt" },
      make("div", { class: "toolbar" }, this.runs.box, make("label", {}, "Step", this.step), make("span", { class: "segmented" }, this.before, this.after), this.title,
        make("span", { class: "segmented", role: "group", "aria-label": "Order" }, ...this.order), this.colors), this.body);
    this.element.addEventListener("keydown", (event) => {
      if (event.target.matches("input, select, pre")) return;
      if (event.key === "ArrowLeft" && !this.before.disabled) this.before.click();
      if (event.key === "ArrowRight" && !this.after.disabled) this.after.click();
    });
  }

  /** The first group of a step. */
  async go_to_step(step) {
    const found = await ask("/api/samples", { run: this.runs.chosen(), step, limit: 1 }).catch(() => ({ rows: [] }));
    if (found.rows.length) change({ group: `${found.rows[0].step}.${found.rows[0].group}` });
    else this.tell(`Step ${step} has no samples.`);
  }

  tell(text) { this.body.replaceChildren(make("div", { class: "card empty", text })); }

  async show() {
    this.runs.show();
    const run = this.runs.chosen();
    if (!run) return;
    for (const button of this.order) button.setAttribute("aria-pressed", String((button.value === "file") === (state.sort === "file")));
    const key = `${run}/${state.group}/${state.sort}`;
    if (key === this.key) return;
    this.key = key;
    if (!state.group) {
      const newest = await ask("/api/samples", { run, limit: 1 }).catch(() => ({ rows: [] }));
      if (this.key !== key) return;
      if (newest.rows.length) change({ group: `${newest.rows[0].step}.${newest.rows[0].group}` });
      else { this.tell("This run has no rollout files yet."); this.key = null; }
      return;
    }
    const [step, group] = state.group.split(".");
    this.step.value = step;
    try {
      const body = await ask("/api/group", { run, step, group });
      if (this.key === key) this.fill(run, step, group, body);
    } catch (error) {
      if (this.key === key) this.tell(error.message);
    }
  }

  fill(run, step, group, { samples, previous, next, is_whole }) {
    const go = (button, to) => {
      button.disabled = to === undefined;
      button.onclick = () => change({ group: `${step}.${to}` });
    };
    go(this.before, previous);
    go(this.after, next);
    this.title.textContent = `Prompt ${group}, ${plural(samples.length, "sample")}`;
    if (!samples.length) return this.tell("The step has no sample of this prompt.");
    const rewards = samples.map((sample) => sample.reward).filter((reward) => reward !== null);
    const is_dead = rewards.length > 1 && rewards.every((reward) => reward === rewards[0]);
    const mean = rewards.length ? rewards.reduce((a, b) => a + b, 0) / rewards.length : null;
    const facts = make("div", { class: "facts" }, make("span", {}, "mean reward ", make("b", { text: number_text(mean) })),
      samples[0].label ? make("span", {}, "label ", make("b", { text: samples[0].label })) : null,
      is_dead ? make("span", { class: "pill warn", text: "all rewards are equal: no advantage" }) : null, is_whole ? null : make("span", { class: "pill warn", text: "the first ones of a large group" }));
    const largest = Math.max(1e-9, ...samples.map((sample) => Math.abs(sample.advantage ?? 0)));
    const ordered = state.sort === "file" ? samples : samples.toSorted((a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity));
    const texts = new Map(samples.map((sample) => [sample, response_text(sample)]));
    this.colors.replaceChildren(...[color_choice(samples, (chosen) => { for (const text of texts.values()) text.paint(chosen); })].filter(Boolean));
    this.body.replaceChildren(make("div", { class: "card" }, facts, make("details", { class: "prompt", open: "" }, make("summary", { text: "Prompt" }), make("pre", { tabindex: "0", "aria-label": "Prompt", text: samples[0].prompt || "(empty)" }))),
      make("div", { class: "members" }, ...ordered.map((sample) => this.member(run, step, sample, largest, texts.get(sample)))));
  }

  member(run, step, sample, largest, text) {
    const has_advantage = typeof sample.advantage === "number";
    const share = has_advantage ? Math.abs(sample.advantage) / largest * 50 : 0;
    const bar = make("div", { class: "advantage", title: "Reward after group normalisation" }, make("i", { class: sample.advantage < 0 ? "minus" : "plus", style: `width: ${share.toFixed(1)}%; ${sample.advantage < 0 ? "right" : "left"}: 50%` }));
    const link = link_to({ tab: "samples", run, step, group: "", sort: "", open: `${step}.${sample.place}` });
    return make("article", { class: "card member", "aria-label": `Sample ${sample.index}` },
      make("div", { class: "card-head" }, make("span", {}, reward_pill(sample.reward), " ", status_pill(sample.status)), make("span", { class: "reading" }, plural(sample.length, "token"), " ", make("a", { href: link, text: `sample ${sample.index ?? sample.place}` }))),
      has_advantage ? make("div", { class: "advantage-row" }, make("span", { text: "advantage" }), bar, make("b", { text: (sample.advantage > 0 ? "+" : "") + number_text(sample.advantage) })) : null,
      sample.failure ? make("div", { class: "facts" }, make("span", {}, "failure ", make("b", { text: sample.failure }))) : null,
      make("div", { class: "sample" }, text.element));
  }
}
