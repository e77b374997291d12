// One sample: its facts, its prompt, and its response token by token.

import { make, number_text } from "./dom.js";

export const STATUS_CLASS = { completed: "plain", truncated: "warn", aborted: "warn", failed: "bad", pending: "plain" };

/** How tokens are colored, over all samples that are open. */
const coloring = { chosen: null };

export function largest_difference(sample) {
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

export function reward_pill(reward) {
  if (reward === null || reward === undefined) return make("span", { class: "pill plain", text: "none" });
  const kind = reward >= 0.999 ? "good" : reward <= 0 ? "bad" : "warn";
  return make("span", { class: `pill ${kind}`, text: Number.isInteger(reward) ? String(reward) : reward.toFixed(3) });
}

export function status_pill(status) { return make("span", { class: `pill ${STATUS_CLASS[status] || "plain"}`, text: status }); }

/** Which weight version made response token `index`. */
function version_of(sample, index) {
  for (const [version, count] of sample.versions || []) {
    if (index < count) return version;
    index -= count;
  }
  return null;
}

/** Facts, prompt and response of a sample. */
export function sample_details(sample) {
  const fact = (name, value) => value === null || value === undefined || value === "" ? null
    : make("span", {}, name + " ", make("b", { text: typeof value === "string" ? value : JSON.stringify(value) }));
  const versions = (sample.versions || []).map(([version, count]) => sample.versions.length > 1 ? `${version} (${count} tokens)` : String(version));
  const facts = make("div", { class: "facts" }, fact("label", sample.label), fact("reward", sample.reward_record ?? sample.reward),
    fact("advantage", sample.advantage === undefined || sample.advantage === null ? null : number_text(sample.advantage)),
    fact("prompt", sample.group), fact("sample", sample.index), fact("weight version", versions.join(", ")),
    fact("prompt tokens from cache", sample.cached_tokens || null), fact("seconds", sample.seconds || null), fact("failure", sample.failure),
    sample.removed ? make("span", { class: "pill warn", text: "not trained" }) : null);
  return make("div", { class: "sample" }, facts, make("h3", { text: "Prompt" }), make("pre", { tabindex: "0", "aria-label": "Prompt", text: sample.prompt || "(empty)" }), ...response_view(sample));
}

/** Ways to color tokens that a sample allows: [[value, text], ...]. */
function color_choices(sample) {
  return [["difference", "rollout \u2212 trainer"], ["probability", "probability"], ["none", "plain"]]
    .filter(([value]) => value !== "difference" || sample.train_log_probs);
}

function has_tokens(sample) { return sample.token_texts && sample.log_probs; }

/** The choice of colors for the tokens of `samples`; `paint` is called with it, now and when it changes. Null without tokens. */
export function color_choice(samples, paint) {
  const first = samples.find(has_tokens);
  if (!first) return null;
  const choices = color_choices(first);
  const choose = (chosen) => {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.value === chosen)));
    paint(chosen);
  };
  const buttons = choices.map(([value, text]) => make("button", { value, text, onclick: () => choose(coloring.chosen = value) }));
  choose(choices.some(([value]) => value === coloring.chosen) ? coloring.chosen : choices[0][0]);
  return make("span", { class: "segmented", role: "group", "aria-label": "Colors of tokens" }, ...buttons);
}

/** The response of a sample, and a function that colors its tokens. */
export function response_text(sample, legend = make("span", { class: "scale" })) {
  const element = make("pre", { tabindex: "0", "aria-label": "Response", text: has_tokens(sample) ? "" : sample.response || "(empty)" });
  return { element, legend, paint: (chosen) => { if (has_tokens(sample)) paint_tokens(element, legend, sample, chosen); } };
}

/** A heading with the choice of colors, and the response. */
export function response_view(sample) {
  const { element, legend, paint } = response_text(sample);
  return [make("h3", {}, "Response", color_choice([sample], paint), legend), element];
}

function paint_tokens(parent, legend, sample, chosen) {
  parent.replaceChildren();
  legend.replaceChildren();
  // Differences are shown against the sample's largest, but never magnified beyond rounding noise.
  const full_scale = Math.max(largest_difference(sample) || 0, 0.02);
  const color = chosen === "difference" ? "--heat" : "--cool";
  if (chosen !== "none") {
    const ends = chosen === "difference" ? ["0", number_text(full_scale)] : ["certain", "unlikely"];
    legend.append(ends[0], make("i", { style: `background: linear-gradient(90deg, transparent, rgb(var(${color}) / 0.7))` }), ends[1]);
  }
  sample.token_texts.forEach((text, i) => {
    const log_prob = sample.log_probs[i], trainer = sample.train_log_probs ? sample.train_log_probs[i] : null;
    let strength = 0;
    if (chosen === "difference" && log_prob !== null && trainer != null) strength = Math.abs(log_prob - trainer) / full_scale;
    if (chosen === "probability" && log_prob !== null) strength = 1 - Math.exp(log_prob);
    const trained = !sample.mask || sample.mask[i];
    const token = make("span", { class: trained ? "token" : "token untrained" });
    if (trained && strength > 0.01) token.style.background = `rgb(var(${color}) / ${(Math.min(strength, 1) * 0.7).toFixed(3)})`;
    // A line break is shown as a mark and still breaks the line.
    text.split(/(\n)/).forEach((piece) => {
      if (piece === "\n") token.append(make("span", { class: "invisible", text: "\u21b5" }), "\n");
      else if (piece) token.append(piece);
    });
    if (!text) token.append(make("span", { class: "invisible", text: "\u25cc" }));
    token.addEventListener("pointerenter", (event) => describe(event, sample, i, text, log_prob, trainer, trained));
    token.addEventListener("pointerleave", () => { document.getElementById("tooltip").style.display = "none"; });
    parent.append(token);
  });
  if (!sample.token_texts.length) parent.append("(empty)");
}

function describe(event, sample, index, text, log_prob, trainer, trained) {
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
