// Elements, and numbers as people read them.

export const SVG = "http://www.w3.org/2000/svg";

/** Styles go through the object model: a Content-Security-Policy without inline styles allows that. */
function set_attribute(element, name, value) {
  if (name === "style") element.style.cssText = value;
  else element.setAttribute(name, value);
}

/** An element with attributes (or properties, for text) and children; text is never parsed as HTML. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) set_attribute(element, name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function draw(parent, tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) set_attribute(element, name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

export function number_text(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toFixed(size >= 1e7 ? 1 : 2) + " M";
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size >= 100) return value.toFixed(1);
  if (size >= 10) return value.toFixed(2);
  if (size >= 0.001 || size === 0) return value.toFixed(3);
  return small_text(value, 3);
}

/** Below a thousandth, as people write it: 0.0001, 2.5e-7. */
export function small_text(value, digits) {
  const short = +value.toPrecision(digits);
  return Math.abs(value) >= 1e-5 ? String(short) : short.toExponential();
}

/** Round numbers that divide [low, high] into about `count` parts. */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const out = [];
  for (let i = Math.ceil(low / unit - 1e-9); i * unit <= high + unit * 1e-9; ++i) out.push(i * unit);
  return out;
}

export function tick_text(value, unit) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6) return +(value / 1e6).toPrecision(4) + "M";
  if (size >= 10000) return +(value / 1000).toPrecision(4) + "k";
  if (size < 1e-3 || unit < 1e-4) return small_text(value, unit < size / 9 ? 2 : 1);
  return String(+value.toFixed(Math.max(0, 1 - Math.floor(Math.log10(unit)))));
}

export function duration_text(seconds) {
  const whole = Math.round(seconds);
  const pad = (n) => String(n).padStart(2, "0");
  return whole >= 3600 ? `${Math.floor(whole / 3600)}:${pad(Math.floor(whole / 60) % 60)}:${pad(whole % 60)}` : `${Math.floor(whole / 60)}:${pad(whole % 60)}`;
}

export function plural(count, word) { return `${count.toLocaleString("en-US")} ${word}${count === 1 ? "" : "s"}`; }

/** Text on one line for a table cell. */
export function excerpt(text, length = 240) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > length ? line.slice(0, length) + "\u2026" : line;
}

/** Light or dark: the system's, until the button is pressed. */
export function theme_button() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set_theme = (is_dark) => {
    document.documentElement.dataset.theme = is_dark ? "dark" : "light";
    document.dispatchEvent(new CustomEvent("themechange"));
  };
  set_theme(dark.matches);
  dark.addEventListener("change", () => set_theme(dark.matches));
  return make("button", { class: "icon", text: "\u25d0", title: "Light or dark", "aria-label": "Light or dark",
    onclick: () => set_theme(document.documentElement.dataset.theme !== "dark") });
}
