// Elements in one line. Text is always text: nothing from a model or a person is ever read as HTML.

import { label } from "../weights.js";

export function h(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && !key.includes("-") && key !== "list") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, properties = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A token as people can see it, apart from the text around it in direction and in looks.
export function token(text) {
  return h("bdi", { className: "token" }, label(text));
}

export function percent(share) {
  if (share < 0) return share > -0.0005 ? "0 %" : "−" + percent(-share);
  if (share >= 0.0995) return (100 * share).toFixed(0) + " %";
  return share >= 0.0005 ? (100 * share).toFixed(1) + " %" : share > 0 ? "< 0.1 %" : "0 %";
}

export function fixed(number, digits = 3) {
  const shown = number.toFixed(digits);
  return Number(shown) === 0 ? shown.replace("-", "") : shown.replace("-", "−");
}

// The same with its sign, unless it is nothing: how much something changes.
export function signed(number, digits = 3) {
  const shown = fixed(number, digits);
  return Number(shown) > 0 ? "+" + shown : shown;
}

// An edge's or a head's name as people read it.
export function cutInWords(name, tokens = null) {
  const [layer, head, row, key] = name.split(":");
  const place = `${layer}, head ${head}`;
  if (row === undefined) return place;
  const called = (side, at) => (tokens ? `${label(tokens[side][at] ?? "?")} ${at}` : at);
  return `${place}: ${called(0, Number(row))} → ${called(1, Number(key))}`;
}

// A choice of one in several, as radio buttons that look like one row of buttons.
let choices = 0;
export function choice(legend, options, chosen, onchoose, className = "") {
  const name = "choice-" + ++choices;
  return h("fieldset", { className: "choice " + className }, h("legend", {}, legend), ...options.map(([value, text, title]) =>
    h("label", { title }, h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onchoose(value) }), h("span", {}, text))));
}

export function selector(text, options, chosen, onchoose) {
  const select = h("select", { onchange: () => onchoose(select.value) }, ...options.map(([value, shown]) => new Option(shown, value, false, value === chosen)));
  return h("label", { className: "selector" }, text, select);
}
