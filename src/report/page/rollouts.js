"use strict";
// The table of rollouts: filter, sort, search, and per sample the prompt and the response token by token.

const PAGE_ROWS = 100;

const STATUS_CLASS = { completed: "plain", truncated: "warn", aborted: "warn", failed: "bad", pending: "plain" };

function plural(count, word) { return `${count.toLocaleString("en-US")} ${word}${count === 1 ? "" : "s"}`; }

/** Text on one line for a table cell. */
function excerpt(text, length = 240) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > length ? line.slice(0, length) + "\u2026" : line;
}

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

function largest_difference(sample) {
  if (!sample.log_probs || !sample.train_log_probs) return null;
  let largest = null;
  const count = Math.min(sample.log_probs.length, sample.train_log_probs.length);
  for (let i = 0; i < count; ++i) {
    if (sample.mask && !sample.mask[i]) continue;
    const a = sample.log_probs[i], b = sample.train_log_probs[i];
    if (a !== null && b !== null) largest = Math.max(largest ?? 0, Math.abs(a - b));
  }
  return largest;
}

function reward_pill(reward) {
  if (reward === null) return make("span", { class: "pill plain", text: "none" });
  const kind = reward >= 0.999 ? "good" : reward <= 0 ? "bad" : "warn";
  return make("span", { class: `pill ${kind}`, text: Number.isInteger(reward) ? String(reward) : reward.toFixed(3) });
}

/** Which weight version made response token `index`. */
function version_of(sample, index) {
  for (const [version, count] of sample.versions || []) {
    if (index < count) return version;
    index -= count;
  }
  return null;
}

class Rollouts {
  constructor(parent, samples) {
    this.samples = samples;
    samples.forEach((sample) => { sample.difference = largest_difference(sample); });
    this.steps = [...new Set(samples.map((sample) => sample.step))].sort((a, b) => a - b);
    this.step = this.steps.at(-1) ?? null;
    this.has_differences = samples.some((sample) => sample.difference !== null);
    this.coloring = this.has_differences ? "difference" : "probability";
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
      make("span", { class: "status" }, make("span", { class: `pill ${STATUS_CLASS[sample.status] || "plain"}`, text: sample.status })),
      make("span", { class: "number length", text: sample.length }),
      make("span", { class: "number difference", text: sample.difference === null ? "-" : number_text(sample.difference) }),
      make("span", { class: "excerpt prompt", text: this.prompt_excerpt(sample.prompt) }),
      make("span", { class: "excerpt response", text: excerpt(sample.response) }));
    let details = null;
    row.addEventListener("click", () => {
      if (details) { details.remove(); details = null; } else row.after(details = this.details(sample));
      row.setAttribute("aria-expanded", String(Boolean(details)));
    });
    return row;
  }

  details(sample) {
    const fact = (name, value) => value === null || value === undefined || value === "" ? null
      : make("span", {}, name + " ", make("b", { text: typeof value === "string" ? value : JSON.stringify(value) }));
    const versions = (sample.versions || []).map(([version, count]) => sample.versions.length > 1 ? `${version} (${count} tokens)` : String(version));
    const facts = make("div", { class: "facts" }, fact("label", sample.label), fact("reward", sample.reward_record ?? sample.reward),
      fact("prompt", sample.group), fact("sample", sample.index), fact("weight version", versions.join(", ")),
      fact("prompt tokens from cache", sample.cached_tokens || null), fact("seconds", sample.seconds || null), fact("failure", sample.failure),
      sample.removed ? make("span", { class: "pill warn", text: "not trained" }) : null);
    const body = make("div", { class: "sample" }, facts, make("h3", { text: "Prompt" }), make("pre", { text: sample.prompt || "(empty)" }));
    const response = make("pre", {});
    const head = make("h3", { text: "Response" });
    if (sample.token_texts && sample.log_probs) {
      const legend = make("span", { class: "scale" });
      const paint = (coloring) => {
        this.coloring = coloring;
        buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.value === coloring)));
        this.paint(response, legend, sample, coloring);
      };
      const choices = [["difference", "rollout \u2212 trainer"], ["probability", "probability"], ["none", "plain"]]
        .filter(([value]) => value !== "difference" || sample.train_log_probs);
      const buttons = choices.map(([value, text]) => make("button", { value, text, onclick: () => paint(value) }));
      head.append(make("span", { class: "segmented" }, ...buttons), legend);
      paint(choices.some(([value]) => value === this.coloring) ? this.coloring : "probability");
    } else {
      response.textContent = sample.response || "(empty)";
    }
    body.append(head, response);
    return body;
  }

  paint(parent, legend, sample, coloring) {
    parent.replaceChildren();
    legend.replaceChildren();
    // Differences are shown against the sample's largest, but never magnified beyond rounding noise.
    const full_scale = Math.max(sample.difference || 0, 0.02);
    const color = coloring === "difference" ? "--heat" : "--cool";
    if (coloring !== "none") {
      const ends = coloring === "difference" ? ["0", number_text(full_scale)] : ["certain", "unlikely"];
      legend.append(ends[0], make("i", { style: `background: linear-gradient(90deg, transparent, rgb(var(${color}) / 0.7))` }), ends[1]);
    }
    sample.token_texts.forEach((text, i) => {
      const log_prob = sample.log_probs[i], trainer = sample.train_log_probs ? sample.train_log_probs[i] : null;
      let strength = 0;
      if (coloring === "difference" && log_prob !== null && trainer != null) strength = Math.abs(log_prob - trainer) / full_scale;
      if (coloring === "probability" && log_prob !== null) strength = 1 - Math.exp(log_prob);
      const trained = !sample.mask || sample.mask[i];
      const token = make("span", { class: trained ? "token" : "token untrained" });
      if (trained && strength > 0.01) token.style.background = `rgb(var(${color}) / ${(Math.min(strength, 1) * 0.7).toFixed(3)})`;
      // A line break is shown as a mark and still breaks the line.
      text.split(/(\n)/).forEach((piece) => {
        if (piece === "\n") token.append(make("span", { class: "invisible", text: "\u21b5" }), "\n");
        else if (piece) token.append(piece);
      });
      if (!text) token.append(make("span", { class: "invisible", text: "\u25cc" }));
      token.addEventListener("pointerenter", (event) => this.describe(event, sample, i, text, log_prob, trainer, trained));
      token.addEventListener("pointerleave", () => { document.getElementById("tooltip").style.display = "none"; });
      parent.append(token);
    });
    if (!sample.token_texts.length) parent.append("(empty)");
  }

  describe(event, sample, index, text, log_prob, trainer, trained) {
    const tooltip = document.getElementById("tooltip");
    const line = (name, value) => make("tr", {}, make("td", { text: name }), make("td", { text: value }));
    const id = sample.ids ? ` (id ${sample.ids[index]})` : "";
    const table = make("table", {}, line("token", `${index + 1} of ${sample.token_texts.length}${id}`));
    if (log_prob !== null) table.append(line("probability", (Math.exp(log_prob) * 100).toFixed(2) + " %"), line("rollout log-prob", log_prob.toFixed(5)));
    if (trainer != null) table.append(line("trainer log-prob", trainer.toFixed(5)));
    if (trainer != null && log_prob !== null) table.append(line("difference", (log_prob - trainer).toExponential(2)));
    const version = version_of(sample, index);
    if (version !== null) table.append(line("weight version", version));
    if (!trained) table.append(line("not trained", "tool output"));
    tooltip.replaceChildren(make("div", { class: "token-text", text: JSON.stringify(text) }), table);
    tooltip.style.display = "block";
    const box = event.target.getBoundingClientRect(), size = tooltip.getBoundingClientRect();
    tooltip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - size.width - 8))}px`;
    tooltip.style.top = `${box.bottom + 8 + size.height < innerHeight ? box.bottom + 8 : box.top - size.height - 8}px`;
  }
}
