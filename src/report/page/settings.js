// Settings of the runs that are shown, side by side: what differs first.

import { change, state } from "./state.js";
import { make, small_text } from "./dom.js";

function value_text(value) {
  if (value === undefined) return "";
  if (value === true) return "given";
  if (typeof value === "number" && value !== 0 && Math.abs(value) < 1e-3) return small_text(value, 8);
  if (Array.isArray(value)) return value.map(value_text).join(" ");
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
}

export class SettingsPanel {
  constructor(feed) {
    this.feed = feed;
    this.only = make("button", { text: "only what differs", onclick: () => change({ all: state.all ? "" : "1" }) });
    this.body = make("div", { class: "settings" });
    this.element = make("section", { "aria-label": "Settings" }, make("div", { class: "toolbar" }, this.only, make("span", { class: "hint", text: "What a run does not set is at its default" })), this.body);
  }

  show() {
    const runs = [...this.feed.followed.values()].map((run) => ({ ...run, flags: this.feed.list.find((one) => one.id === run.id)?.flags ?? {} }));
    const is_alone = runs.length < 2;
    this.only.hidden = is_alone;
    this.only.setAttribute("aria-pressed", String(!state.all));
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.flags)))].sort();
    const rows = names.map((name) => ({ name, values: runs.map((run) => value_text(run.flags[name])) }))
      .map((row) => ({ ...row, differs: row.values.some((value) => value !== row.values[0]) }))
      .filter((row) => is_alone || state.all || row.differs);
    const drawn = JSON.stringify([rows, runs.map((run) => [run.id, run.color])]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    if (!rows.length) {
      const text = !runs.length ? "No run is shown." : is_alone ? "Everything is at its default." : "The settings of these runs are the same.";
      this.body.replaceChildren(make("div", { class: "card empty", text }));
      return;
    }
    this.body.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col", text: "Setting" }),
      ...runs.map((run) => make("th", { scope: "col" }, make("i", { class: "dot", style: `background: var(--c${run.color})` }), run.label)))),
    make("tbody", {}, ...rows.map((row) => make("tr", { class: row.differs && !is_alone ? "differs" : "" }, make("th", { scope: "row" }, make("code", { text: row.name })),
      ...row.values.map((value) => make("td", { class: value ? "" : "default", text: value || "default" })))))));
  }
}
