// The list of runs: which of them are drawn, in which color, and how far each is.

import { make, number_text } from "./dom.js";
import { change } from "./state.js";

/** Of all runs at most so many are drawn at first. */
const FIRST_SHOWN = 6;
const STATE_CLASS = { running: "good", finished: "plain", interrupted: "warn", failed: "bad", died: "bad" };

/** Which runs the address names; without a name in it, the newest ones. */
export function chosen_runs(list, words) {
  const ids = list.map((run) => run.id);
  if (words === "none") return [];
  const named = words.split(",").filter((id) => ids.includes(id));
  if (named.length) return named;
  return ids.slice(-FIRST_SHOWN);
}

export class RunList {
  constructor(parent, feed) {
    this.feed = feed;
    this.parent = parent;
    this.search = make("input", { type: "search", placeholder: "Find a run", "aria-label": "Find a run", oninput: () => this.show() });
    this.rows = make("div", { class: "run-rows" });
    this.count = make("span", { class: "count" });
    this.box = make("details", { class: "runs-box", open: "" }, make("summary", {}, make("h2", { text: "Runs" }), this.count), this.search, this.rows);
    if (matchMedia("(max-width: 900px)").matches) this.box.removeAttribute("open");
    parent.append(this.box);
  }

  toggle(id, is_on) {
    const shown = new Set(this.feed.followed.keys());
    if (is_on) shown.add(id);
    else shown.delete(id);
    change({ runs: [...shown].join(",") || "none" });
  }

  show() {
    const words = this.search.value.toLowerCase();
    const { list, followed } = this.feed;
    this.search.hidden = list.length < 8;
    this.count.textContent = followed.size === list.length ? String(list.length) : `${followed.size} of ${list.length}`;
    const rows = list.toReversed().filter((run) => !words || run.id.toLowerCase().includes(words)).slice(0, 200);
    const focused = document.activeElement?.dataset?.run;
    this.rows.replaceChildren(...rows.map((run) => this.row(run, followed.get(run.id))));
    if (focused) this.rows.querySelector(`input[data-run="${CSS.escape(focused)}"]`)?.focus();
  }

  row(run, followed) {
    const box = make("input", { type: "checkbox", "data-run": run.id, onchange: () => this.toggle(run.id, box.checked) });
    box.checked = Boolean(followed);
    const steps = Math.max(run.last_step + 1, followed?.num_steps ?? 0);
    const share = run.num_steps > 0 ? Math.min(1, steps / run.num_steps) : 0;
    const bar = make("div", { class: "bar" }, make("i", { style: `width: ${(share * 100).toFixed(1)}%; background: ${followed ? `var(--c${followed.color})` : "var(--faint)"}` }));
    return make("label", { class: "run-row", title: run.folder, style: followed ? `--own: var(--c${followed.color})` : "" }, box,
      make("span", { class: "run-name", text: run.id }),
      run.state ? make("span", { class: `pill ${STATE_CLASS[run.state] || "plain"}`, text: run.state }) : null,
      make("span", { class: "run-facts", text: `${steps}${run.num_steps > 0 ? ` / ${run.num_steps}` : ""} steps${run.reward === null || run.reward === undefined ? "" : `, reward ${number_text(run.reward)}`}` }),
      run.num_steps > 0 ? bar : null);
  }
}
