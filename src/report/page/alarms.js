// Alarms of the runs that are shown: what happened, and where to look.

import { alarm_card } from "./alarm_card.js";
import { ask } from "./feed.js";
import { link_to } from "./state.js";
import { make } from "./dom.js";

const PAUSE_MS = 5000;
/** What a filter of samples may say; everything else of the address stays. */
const NO_FILTER = { step: "", sort: "", status: "", reward: "", version: "", text: "", dead: "", upto: "", group: "", open: "" };

export class AlarmsPanel {
  constructor(feed) {
    this.feed = feed;
    this.known = new Map();  // run: { version, alarms }
    this.body = make("div", { class: "alarms" });
    this.element = make("section", { "aria-label": "Alarms" }, make("h2", { text: "Alarms" }), this.body);
  }

  /** Asks for the alarms of runs that have grown. */
  async refresh() {
    if (this.is_busy) return;
    this.is_busy = true;
    for (const run of this.feed.followed.values()) {
      if (this.known.get(run.id)?.version === run.version) continue;
      const { version } = run;
      const alarms = await ask("/api/alarms", { run: run.id }).catch(() => null);
      if (alarms) this.known.set(run.id, { version, alarms });
    }
    document.dispatchEvent(new CustomEvent("alarmschange"));
    setTimeout(() => {
      this.is_busy = false;
      if ([...this.feed.followed.values()].some((run) => this.known.get(run.id)?.version !== run.version)) this.refresh();
    }, PAUSE_MS);
  }

  /** [[run, alarm], ...] of the runs that are shown. */
  all() {
    return [...this.feed.followed.values()].flatMap((run) => (this.known.get(run.id)?.alarms ?? []).map((alarm) => [run, alarm]));
  }

  num_now() { return this.all().filter(([, alarm]) => alarm.is_now).length; }

  show() {
    const text = JSON.stringify(this.all().map(([run, alarm]) => [run.id, alarm]));
    if (text === this.drawn) return;
    this.drawn = text;
    const cards = this.all().map(([run, alarm]) => alarm_card(alarm, run.label,
      make("a", { class: "button", href: link_to({ ...NO_FILTER, tab: "samples", run: run.id, ...alarm.look }), text: "Look at these samples" }),
      make("a", { class: "button", href: link_to({ tab: "charts", axis: "step", range: `${Math.max(0, alarm.first_step - 30)}~${alarm.last_step + 5}` }), text: "On the charts" })));
    this.body.replaceChildren(...(cards.length ? cards : [make("div", { class: "card empty", text: "No alarm: no rule holds for these runs." })]));
  }
}
