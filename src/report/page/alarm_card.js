// One alarm: what happened, when, and what to look at.

import { make } from "./dom.js";

/** The card of an alarm; `links` lead to what shows it. */
export function alarm_card(alarm, name, ...links) {
  const when = alarm.first_step === alarm.last_step ? `step ${alarm.last_step}` : `steps ${alarm.first_step} to ${alarm.last_step}`;
  return make("article", { class: `alarm ${alarm.is_now ? "now" : ""}` },
    make("div", { class: "alarm-head" }, make("b", { text: alarm.title }), name ? make("span", { class: "run-tag", text: name }) : null,
      make("span", { class: `pill ${alarm.is_now ? "bad" : "plain"}`, text: alarm.is_now ? "to the last step" : "over" }), make("span", { class: "when", text: when })),
    make("p", { text: alarm.what }), make("p", { class: "advice", text: alarm.advice }), links.length ? make("div", { class: "links" }, ...links) : null);
}
