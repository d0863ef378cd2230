// A small map as a table: a row for each thing that looks, a cell for each number, blue above 0 and brown below. Where
// the largest is so small that two digits would say nothing, all are told in units of a power of ten.

import { fixed, h, token } from "./dom.js";

const WRITTEN = 14; // with more columns than this a cell has no room for its number

export function grid(name, rows, columns, values, { digits = 2, largest = null, head = "" } = {}) {
  const most = largest ?? Math.max(...values.flat().map(Math.abs), 1e-9);
  const power = most < 0.05 ? Math.ceil(-Math.log10(most)) : 0, unit = 10 ** -power;
  const named = (one) => (typeof one === "string" ? token(one) : one), plain = (one) => (typeof one === "string" ? one : one.textContent);
  const cell = (number, row, column) => {
    const shown = fixed(number / unit, digits);
    const made = h("td", { className: number < 0 ? "negative" : "positive", title: `${plain(rows[row])} → ${plain(columns[column])}: ${power ? number.toExponential(2).replaceAll("-", "−") : fixed(number, 4)}` });
    made.append(columns.length > WRITTEN ? h("span", { className: "unseen" }, shown) : shown);
    made.style.setProperty("--size", Math.min(Math.abs(number) / most, 1));
    return made;
  };
  return h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": name }, h("table", { className: "vectors grid" + (columns.length > WRITTEN ? " small" : "") },
    power ? h("caption", {}, `in units of 10`, h("sup", {}, `−${power}`)) : null,
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, head), ...columns.map((one) => h("th", { scope: "col", className: columns.length > WRITTEN ? "upright" : "" }, named(one))))),
    h("tbody", {}, ...values.map((row, at) => h("tr", {}, h("th", { scope: "row" }, named(rows[at])), ...row.map((number, column) => cell(number, at, column)))))));
}
