// The table of rollouts: filter, sort, search, and per sample the prompt and the response token by token.

import { excerpt, make, number_text, plural } from "./dom.js";
import { largest_difference, reward_pill, sample_details, status_pill } from "./tokens.js";

const PAGE_ROWS = 100;

/** What all texts begin and end with, as lengths: a chat template's frame says nothing in a table. */
function common_frame(texts) {
  const first = texts[0];
  let begin = first.length, end = first.length;
  for (const text of texts) {
    const limit = Math.min(text.length, first.length);
    let same = 0;
    while (same < Math.min(begin, limit) && text[same] === first[same]) ++same;
    begin = same;
    same = 0;
    while (same < Math.min(end, limit - begin) && text.at(-1 - same) === first.at(-1 - same)) ++same;
    end = same;
  }
  return [begin, end];
}

export class Rollouts {
  constructor(parent, samples) {
    this.samples = samples;
    samples.forEach((sample) => { sample.difference = largest_difference(sample); });
    this.steps = [...new Set(samples.map((sample) => sample.step))].sort((a, b) => a - b);
    this.step = this.steps.at(-1) ?? null;
    this.has_differences = samples.some((sample) => sample.difference !== null);
    this.shown = PAGE_ROWS;
    this.frame = samples.length ? common_frame(samples.map((sample) => sample.prompt)) : [0, 0];
    parent.append(make("h2", { text: "Rollouts" }));
    if (!samples.length) {
      parent.append(make("div", { class: "card empty", text: "This run kept no rollouts." }));
      return;
    }
    this.build_controls(parent);
    this.table = make("div", { class: "table" });
    parent.append(this.table);
    document.addEventListener("pickstep", (event) => this.pick(event.detail));
    this.show();
  }

  build_controls(parent) {
    const option = (value, text) => make("option", { value, text });
    this.step_select = make("select", { "aria-label": "Step", onchange: () => this.set_step(this.step_select.value) },
      option("all", "all steps"), ...this.steps.map((step) => option(step, `step ${step}`)));
    this.step_select.value = this.step;
    const move = (by) => () => {
      const at = this.step === null ? (by > 0 ? -1 : this.steps.length) : this.steps.indexOf(this.step);
      this.set_step(this.steps[Math.min(Math.max(at + by, 0), this.steps.length - 1)]);
    };
    const step_box = make("span", { class: "segmented" }, make("button", { text: "\u2039", title: "Step before", onclick: move(-1) }),
      make("button", { text: "\u203a", title: "Next step", onclick: move(1) }));
    this.sort_select = make("select", { "aria-label": "Sort", onchange: () => this.restart() },
      option("order", "in order"), option("reward-", "highest reward"), option("reward+", "lowest reward"),
      option("length-", "longest"), option("length+", "shortest"),
      ...(this.has_differences ? [option("difference-", "largest log-prob difference")] : []));
    const statuses = [...new Set(this.samples.map((sample) => sample.status))].sort();
    this.status_select = make("select", { "aria-label": "Status", onchange: () => this.restart() },
      option("", "any status"), ...statuses.map((status) => option(status, status)));
    this.search = make("input", { type: "search", placeholder: "Search prompts and responses", "aria-label": "Search", oninput: () => this.restart() });
    this.count = make("span", { class: "count" });
    parent.append(make("div", { class: "controls" }, this.step_select, step_box, this.sort_select,
      statuses.length > 1 ? this.status_select : null, this.search, this.count));
  }

  set_step(value) {
    this.step = value === "all" ? null : Number(value);
    this.step_select.value = value;
    this.restart();
  }

  /** The step with rollouts that is nearest to a click on a plot. */
  pick(step) {
    this.set_step(this.steps.reduce((best, one) => Math.abs(one - step) < Math.abs(best - step) ? one : best));
    this.table.parentElement.scrollIntoView({ behavior: "smooth", block: "start" });
  }

  restart() {
    this.shown = PAGE_ROWS;
    this.show();
  }

  selected() {
    const words = this.search.value.toLowerCase();
    const rows = this.samples.filter((sample) => (this.step === null || sample.step === this.step) &&
      (!this.status_select.value || sample.status === this.status_select.value) &&
      (!words || sample.prompt.toLowerCase().includes(words) || sample.response.toLowerCase().includes(words)));
    const [key, direction] = [this.sort_select.value.slice(0, -1), this.sort_select.value.at(-1)];
    if (this.sort_select.value === "order") return rows;
    const sign = direction === "-" ? -1 : 1;
    return rows.sort((a, b) => (a[key] === null) - (b[key] === null) || sign * (a[key] - b[key]));
  }

  show() {
    const rows = this.selected();
    const rewards = rows.map((sample) => sample.reward).filter((reward) => reward !== null);
    const mean = rewards.length ? `, mean reward ${number_text(rewards.reduce((a, b) => a + b, 0) / rewards.length)}` : "";
    this.count.textContent = plural(rows.length, "sample") + mean;
    const names = ["Step", "Reward", "Status", "Length", "Max \u0394", "Prompt", "Response"];
    const classes = ["number", "", "status", "number length", "number difference", "excerpt prompt", ""];
    const titles = { 4: "Largest difference of a token's log-prob between rollout and trainer" };
    this.table.replaceChildren(make("div", { class: "row head" }, ...names.map((text, i) => make("span", { class: classes[i], text, title: titles[i] }))));
    rows.slice(0, this.shown).forEach((sample) => this.table.append(this.row(sample)));
    if (!rows.length) this.table.append(make("div", { class: "empty", text: "No sample matches." }));
    if (rows.length > this.shown) {
      this.table.append(make("button", { class: "more", text: `Show ${Math.min(PAGE_ROWS, rows.length - this.shown)} more of ${rows.length - this.shown}`,
        onclick: () => { this.shown += PAGE_ROWS; this.show(); } }));
    }
  }

  /** The part in which this prompt differs from the others, with the line that it is on. */
  prompt_excerpt(prompt) {
    const [begin, end] = this.frame;
    if (begin + end >= prompt.length) return excerpt(prompt);
    const line = prompt.lastIndexOf("\n", begin - 1) + 1;
    const from = begin - line <= 80 ? line : begin;
    return (from > 0 ? "\u2026" : "") + excerpt(prompt.slice(from, prompt.length - end));
  }

  row(sample) {
    const row = make("button", { class: "row", "aria-expanded": "false" },
      make("span", { class: "number", text: sample.step }), make("span", {}, reward_pill(sample.reward)),
      make("span", { class: "status" }, status_pill(sample.status)),
      make("span", { class: "number length", text: sample.length }),
      make("span", { class: "number difference", text: sample.difference === null ? "-" : number_text(sample.difference) }),
      make("span", { class: "excerpt prompt", text: this.prompt_excerpt(sample.prompt) }),
      make("span", { class: "excerpt response", text: excerpt(sample.response) }));
    let details = null;
    row.addEventListener("click", () => {
      if (details) { details.remove(); details = null; } else row.after(details = sample_details(sample));
      row.setAttribute("aria-expanded", String(Boolean(details)));
    });
    return row;
  }
}
