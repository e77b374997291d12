// The table of samples: any of a run's, filtered and sorted by the server, and the one that is open beside it.

import { ask } from "./feed.js";
import { change, link_to, state } from "./state.js";
import { make, number_text, plural } from "./dom.js";
import { reward_pill, sample_details, status_pill } from "./tokens.js";

const ROW = 38, PAGE = 100;
/** Browsers have no elements of any height: longer tables scroll faster. */
const MOST_PIXELS = 12e6;

const ORDERS = [["", "newest step first"], ["reward-", "highest reward"], ["reward+", "lowest reward"], ["length-", "longest"], ["length+", "shortest"],
  ["difference-", "largest log-prob difference"], ["version+", "oldest weights"]];
const STATUSES = [["", "any status"], ["completed", "completed"], ["truncated", "truncated"], ["aborted", "aborted"], ["failed", "failed"]];

function select(label, choices, name) {
  const box = make("select", { "aria-label": label, onchange: () => change({ [name]: box.value, open: "" }) }, ...choices.map(([value, text]) => make("option", { value, text })));
  return box;
}

/** Choice of one of the followed runs. */
export class RunChoice {
  constructor(feed) {
    this.feed = feed;
    this.box = make("select", { "aria-label": "Run", onchange: () => change({ run: this.box.value, open: "", group: "" }) });
  }

  /** The run that the address names, or the newest of those that are shown. */
  chosen() {
    if (this.feed.list.some((run) => run.id === state.run)) return state.run;
    return [...this.feed.followed.keys()].at(-1) ?? this.feed.list.at(-1)?.id ?? null;
  }

  show() {
    const ids = this.feed.list.map((run) => run.id).reverse();
    if (ids.join("\n") !== this.known) {
      this.known = ids.join("\n");
      this.box.replaceChildren(...ids.map((id) => make("option", { value: id, text: id })));
    }
    this.box.value = this.chosen() ?? "";
  }
}

/** A delay between what is typed and what is asked. */
function later(milliseconds, action) {
  let timer = 0;
  return (...words) => { clearTimeout(timer); timer = setTimeout(() => action(...words), milliseconds); };
}

export class SamplesPanel {
  constructor(feed) {
    this.feed = feed;
    this.runs = new RunChoice(feed);
    this.step = make("input", { type: "number", min: 0, placeholder: "all steps", "aria-label": "Step", oninput: later(250, () => change({ step: this.step.value, open: "" })) });
    this.order = select("Sort", ORDERS, "sort");
    this.status = select("Status", STATUSES, "status");
    this.reward = make("input", { type: "number", step: "any", placeholder: "reward", "aria-label": "Reward", oninput: later(250, () => change({ reward: this.reward.value, open: "" })) });
    this.version = make("input", { type: "number", min: 0, placeholder: "version", "aria-label": "Weight version", oninput: later(250, () => change({ version: this.version.value, open: "" })) });
    this.search = make("input", { type: "search", placeholder: "Search prompts and responses", "aria-label": "Search prompts and responses", maxlength: 150, oninput: later(350, () => change({ text: this.search.value, upto: "", open: "" })) });
    this.chips = [["reward = 0", { reward: "0" }], ["truncated", { status: "truncated" }], ["longest", { sort: "length-" }], ["largest \u0394", { sort: "difference-" }], ["dead groups", { dead: "1" }]]
      .map(([text, words]) => make("button", { class: "chip", text, onclick: (event) => this.press(event.currentTarget, words) }));
    this.chip_words = [{ reward: "0" }, { status: "truncated" }, { sort: "length-" }, { sort: "difference-" }, { dead: "1" }];
    this.clear = make("button", { class: "chip", text: "clear", onclick: () => change({ step: "", sort: "", status: "", reward: "", version: "", text: "", dead: "", upto: "", group: "", open: "" }) });
    const move = (by) => () => this.move_step(by);
    this.count = make("span", { class: "count", role: "status" });
    this.more = make("span", {});
    this.rows = make("div", { class: "virtual" });
    this.scroller = make("div", { class: "scroller", role: "grid", "aria-label": "Samples", tabindex: "-1", onscroll: () => this.draw_soon() }, this.rows);
    const names = [["Step", "number"], ["Reward", ""], ["Status", "status"], ["Tokens", "number length"], ["Max \u0394", "number difference"], ["Prompt", "prompt"], ["Response", "response"]];
    this.head = make("div", { class: "vrow vhead", role: "row" }, ...names.map(([text, name]) => make("span", { class: name, role: "columnheader", text, title: text.startsWith("Max") ? "Largest difference of a token's log-prob between rollout and trainer" : null })));
    this.side = make("aside", { class: "side", "aria-label": "Sample", hidden: "" });
    this.element = make("section", { class: "samples", "aria-label": "Samples" },
      make("div", { class: "toolbar" }, this.runs.box,
        make("span", { class: "segmented" }, make("button", { text: "\u2039", "aria-label": "Step before", onclick: move(-1) }), this.step, make("button", { text: "\u203a", "aria-label": "Next step", onclick: move(1) })),
        this.order, this.status, this.reward, this.version),
      make("div", { class: "toolbar chips" }, ...this.chips, this.clear, this.search, this.more, this.count),
      make("div", { class: "split" }, make("div", { class: "table list" }, this.head, this.scroller), this.side));
    this.pages = new Map();
    this.total = 0;
    this.key = null;
    this.focus = 0;
    this.scroller.addEventListener("keydown", (event) => this.press_key(event));
    new ResizeObserver(() => this.draw_soon()).observe(this.scroller);
  }

  press(button, words) {
    const is_on = button.getAttribute("aria-pressed") === "true";
    const [name] = Object.keys(words);
    change({ [name]: is_on ? "" : words[name], open: "" });
  }

  move_step(by) {
    const { first_step, last_step } = this;
    if (last_step === undefined) return;
    const at = state.step === "" ? (by > 0 ? first_step - 1 : last_step + 1) : Number(state.step);
    change({ step: String(Math.min(Math.max(at + by, first_step), last_step)), open: "" });
  }

  words() {
    const words = { run: this.runs.chosen() };
    for (const name of ["step", "sort", "status", "reward", "version", "text", "dead"]) if (state[name] !== "") words[name] = state[name];
    if (state.upto !== "" && state.step === "") words.last_step = state.upto;
    return words;
  }

  /** Takes the state of the address; asks for what is not there yet. */
  show() {
    this.runs.show();
    for (const [box, name] of [[this.step, "step"], [this.order, "sort"], [this.status, "status"], [this.reward, "reward"], [this.version, "version"], [this.search, "text"]])
      if (document.activeElement !== box && box.value !== state[name]) box.value = state[name];
    this.chips.forEach((chip, i) => {
      const [[name, value]] = Object.entries(this.chip_words[i]);
      chip.setAttribute("aria-pressed", String(state[name] === value));
    });
    if (!this.runs.chosen()) return;
    const key = JSON.stringify(this.words());
    if (key !== this.key) {
      this.key = key;
      this.pages.clear();
      this.scroller.scrollTop = 0;
      this.focus = 0;
      this.ask_page(0);
    }
    this.show_side();
  }

  /** New rows may be there. Rows that somebody reads stay where they are. */
  refresh() {
    if (this.key === null || state.text || state.open || this.scroller.scrollTop > 0) return;
    this.is_stale = true;
    this.ask_page(0);
  }

  async ask_page(page) {
    if (this.asked === `${this.key}/${page}`) return;
    this.asked = `${this.key}/${page}`;
    const key = this.key;
    try {
      const words = this.words();
      // Steps that come meanwhile would shift the rows of later pages.
      if (page > 0 && this.newest !== undefined && !words.step && !words.last_step) words.last_step = this.newest;
      const body = await ask("/api/samples", { ...words, offset: page * PAGE, limit: PAGE });
      if (key !== this.key) return;
      if (this.is_stale || (page === 0 && body.total !== this.total)) { this.pages.clear(); this.is_stale = false; }
      if (page === 0) this.newest = body.last_step;
      this.pages.set(page, body.rows);
      this.total = body.total;
      this.first_step = body.first_step;
      this.last_step = body.last_step;
      this.show_count(body);
      if (body.num_indexed < body.num_steps && !state.text && !state.step) this.poll();
    } catch (error) {
      if (key === this.key) this.count.textContent = error.message;
    } finally {
      if (this.asked === `${key}/${page}`) this.asked = null;
      this.draw_soon();
    }
  }

  poll() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (!this.element.isConnected) return;
      if (this.scroller.scrollTop > 0 || state.open) this.ask_page(Math.floor(this.first_row() / PAGE));
      else this.refresh();
    }, 1000);
  }

  show_count(body) {
    const mean = body.mean_reward === null ? "" : `, mean reward ${number_text(body.mean_reward)}`;
    const part = body.num_indexed < body.num_steps && !state.step ? ` (${body.num_indexed} of ${plural(body.num_steps, "step")} read so far)` : "";
    const is_missing = state.step !== "" && !body.total && (Number(state.step) < body.first_step || Number(state.step) > body.last_step);
    this.count.textContent = body.num_steps === 0 ? "This run has no rollout files." : is_missing ? `Step ${state.step} has no rollout file; there are ${body.first_step} to ${body.last_step}.` : plural(body.total, "sample") + mean + part;
    this.more.replaceChildren();
    if (body.next_step === undefined) return;
    this.more.append(`searched down to step ${body.next_step + 1} `, make("button", { class: "chip", text: "search on", onclick: () => change({ upto: String(body.next_step) }) }));
  }

  height() { return Math.min(this.total * ROW, MOST_PIXELS); }

  /** Index of the row at the top; a fraction where it is half out of sight. */
  first_row() {
    const room = this.height() - this.scroller.clientHeight;
    if (room <= 0) return 0;
    return this.scroller.scrollTop / room * (this.total - this.scroller.clientHeight / ROW);
  }

  draw_soon() {
    if (this.is_due) return;
    this.is_due = true;
    requestAnimationFrame(() => { this.is_due = false; this.draw(); });
  }

  draw() {
    this.rows.style.height = `${this.height()}px`;
    this.scroller.setAttribute("aria-rowcount", String(this.total));
    const first = this.first_row(), begin = Math.floor(first);
    const end = Math.min(this.total, begin + Math.ceil(this.scroller.clientHeight / ROW) + 1);
    const top = this.scroller.scrollTop - (first - begin) * ROW;
    const had_focus = this.rows.contains(document.activeElement);
    const fragment = document.createDocumentFragment();
    for (let i = begin; i < end; ++i) {
      const row = this.pages.get(Math.floor(i / PAGE))?.[i % PAGE];
      fragment.append(this.row(i, row, top + (i - begin) * ROW));
    }
    this.rows.replaceChildren(fragment);
    if (had_focus) this.rows.querySelector(`[aria-rowindex="${this.focus + 1}"]`)?.focus({ preventScroll: true });
    for (const page of new Set([Math.floor(begin / PAGE), Math.floor(Math.max(end - 1, 0) / PAGE)])) {
      if (!this.pages.has(page) && page * PAGE < this.total) this.ask_page(page);
    }
    if (this.pages.size > 50) for (const page of this.pages.keys()) if (Math.abs(page - begin / PAGE) > 20) this.pages.delete(page);
    if (!this.total) this.rows.replaceChildren(make("div", { class: "empty", text: this.pages.size ? "No sample matches." : "" }));
  }

  row(index, row, top) {
    const element = make("div", { class: "vrow", role: "row", "aria-rowindex": index + 1, tabindex: index === this.focus ? "0" : "-1", style: `transform: translateY(${top}px)` });
    if (!row) return element;
    const open = `${row.step}.${row.place}`;
    if (open === state.open) element.setAttribute("aria-selected", "true");
    const cell = (name, ...children) => make("span", { class: name, role: "gridcell" }, ...children);
    element.append(cell("number", String(row.step)), cell("", reward_pill(row.reward)), cell("status", status_pill(row.status)), cell("number length", String(row.length)),
      cell("number difference", row.difference === null ? "-" : number_text(row.difference)), cell("prompt", row.prompt), cell("response", row.response));
    element.addEventListener("click", () => { this.focus = index; this.open(open); });
    return element;
  }

  open(open) { change({ open: open === state.open ? "" : open }, true); }

  press_key(event) {
    const visible = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: visible, PageUp: -visible, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      event.preventDefault();
      this.focus = Math.min(Math.max(this.focus + moves[event.key], 0), Math.max(this.total - 1, 0));
      this.scroll_to(this.focus);
      this.draw();
      this.rows.querySelector(`[aria-rowindex="${this.focus + 1}"]`)?.focus({ preventScroll: true });
      const row = this.pages.get(Math.floor(this.focus / PAGE))?.[this.focus % PAGE];
      if (state.open && row && event.key.startsWith("Arrow")) change({ open: `${row.step}.${row.place}` });
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      const row = this.pages.get(Math.floor(this.focus / PAGE))?.[this.focus % PAGE];
      if (row) this.open(`${row.step}.${row.place}`);
    } else if (event.key === "Escape" && state.open) {
      change({ open: "" });
    }
  }

  scroll_to(index) {
    const first = this.first_row(), visible = this.scroller.clientHeight / ROW;
    const wanted = index < first ? index : index + 1 > first + visible ? index + 1 - visible : first;
    const room = this.height() - this.scroller.clientHeight;
    if (wanted !== first && room > 0) this.scroller.scrollTop = wanted / (this.total - visible) * room;
  }

  /** The open sample beside the table. */
  async show_side() {
    const run = this.runs.chosen(), key = state.open && `${run}/${state.open}`;
    if (key === this.side_key) return;
    this.side_key = key;
    this.side.hidden = !key;
    this.draw_soon();
    if (!key) return;
    const [step, place] = state.open.split(".");
    this.side.replaceChildren(make("div", { class: "empty", text: "Reading" }));
    try {
      const sample = await ask("/api/sample", { run, step, place });
      if (this.side_key !== key) return;
      const group = link_to({ tab: "group", run, step: "", group: `${sample.step}.${sample.group}`, open: "" });
      this.side.replaceChildren(make("div", { class: "side-head" }, make("b", { text: `Step ${sample.step}, sample ${sample.index ?? place} of prompt ${sample.group ?? "?"}` }),
        make("a", { class: "button", href: group, text: "Its group" }), make("button", { class: "icon", text: "\u00d7", "aria-label": "Close", onclick: () => change({ open: "" }) })), sample_details(sample));
      this.side.scrollTop = 0;
    } catch (error) {
      if (this.side_key === key) this.side.replaceChildren(make("div", { class: "problems", text: error.message }));
    }
  }
}
