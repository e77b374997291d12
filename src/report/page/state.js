// What the page shows, as the fragment of its address: a link to it shows the same.

const DEFAULTS = { tab: "charts", runs: "", axis: "step", log: "", smooth: "", range: "", run: "", step: "", sort: "", reward: "",
  status: "", version: "", text: "", dead: "", upto: "", open: "", group: "", all: "" };

export const state = { ...DEFAULTS };

function read() {
  const words = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(DEFAULTS)) state[name] = words.get(name) ?? DEFAULTS[name];
}

/** The fragment of the state with these changes: for links. */
export function link_to(changes) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...state, ...changes })) {
    if (value !== DEFAULTS[name] && value !== null && value !== undefined) words.set(name, String(value));
  }
  return "#" + words.toString().replaceAll("%2C", ",").replaceAll("%2F", "/");
}

/** `is_step`: the browser's back button goes back to what was before. */
export function change(changes, is_step = false) {
  const link = link_to(changes);
  if (link === (location.hash || "#")) return;
  if (is_step) history.pushState(null, "", link);
  else history.replaceState(null, "", link);
  read();
  document.dispatchEvent(new CustomEvent("statechange"));
}

addEventListener("popstate", () => { read(); document.dispatchEvent(new CustomEvent("statechange")); });
read();
