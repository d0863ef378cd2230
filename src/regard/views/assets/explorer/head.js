// One head: tokens with lines between them, or a heat map; rows are asked for when they are looked at, and are exact.

import { SPECIAL, unitsOf } from "../weights.js";
import { choice, h, percent, selector, signed, token } from "./dom.js";
import { NO_ATTENTION, layerInWords, sideNames } from "./kinds.js";
import { Lines } from "./lines.js";
import { among } from "./said.js";
import { saving } from "./save.js";
import { HeatMap } from "./map.js";
import { unpack } from "./source.js";

const LISTED = 10;
const TOGETHER = 64; // rows that are asked for at once

export class OneHead {
  static id = "head";
  static title = "One head";
  static lead = "Choose a token on the left: the lines show which tokens this head looks at from there, thicker for more. All numbers are exact.";
  static refuses = (app) => (app.reading.layers.length ? null : NO_ATTENTION);

  constructor(app, body) {
    this.app = app;
    this.body = body;
    this.build();
  }

  build() {
    const { app } = this, { layer } = app;
    this.layer = layer;
    this.head = app.head;
    const { tokens, layers } = app.reading;
    this.units = { row: unitsOf(tokens[layer.rows], app.state.words), column: unitsOf(tokens[layer.columns], app.state.words) };
    const how = among(app.state.more.draw, ["lines", "map"], "lines");
    const heads = Array.from({ length: layer.heads }, (_, head) => [head, String(head)]);
    const words = h("label", { className: "check" }, h("input", { type: "checkbox", checked: app.state.words, onchange: (event) => this.change({ words: event.target.checked, row: -1 }, "input[type=checkbox]") }), "Whole words");
    this.readout = h("p", { className: "readout", role: "status" });
    this.area = h("div", { className: "area" });
    this.partners = h("aside", { className: "partners", "aria-label": "Where it looks most" });
    this.body.replaceChildren(
      h("div", { className: "controls" },
        selector("Layer", layers.map((one) => [one.name, one.name]), layer.name, (name) => this.change({ layer: name, row: -1 }, "select")),
        choice("Head", heads, this.head, (head) => this.change({ head }, ".heads-choice input:checked"), "heads-choice"),
        choice("Draw", [["lines", "Lines"], ["map", "Map"]], how, (draw) => this.change({ more: { ...app.state.more, draw } }, ".draw-choice input:checked"), "draw-choice"),
        words),
      h("p", { className: "quiet" }, `${layer.name}: ${layerInWords(layer)}; ${layer.mechanism ? "they need not add up to 100 %, and may be below 0" : "the weights of a row add up to 100 %"}.`),
      this.readout,
      h("div", { className: "split" }, this.area, this.partners),
      app.beside ? "" : saving(app));
    this.drawing = how === "map" ? new HeatMap(this, this.area) : new Lines(this, this.area);
    this.look(this.current);
  }

  change(changes, focus) {
    Object.assign(this.app.state, changes);
    this.drawing.close?.();
    this.build();
    this.body.querySelector(focus)?.focus();
    this.app.remember();
  }

  close() {
    this.drawing.close?.();
  }

  resize() {
    this.drawing.draw();
  }

  // The row that is looked at; where none was chosen, the first that is no special token.
  get current() {
    const { row } = this.app.state;
    if (row >= 0 && row < this.units.row.count) return row;
    return Math.max(this.units.row.texts.findIndex((text) => !SPECIAL.test(text)), 0);
  }

  names() {
    return sideNames(this.layer);
  }

  // The exact weights of one unit: from a word the mean of its pieces' rows, to a word the sum over its pieces.
  async weights(unit) {
    const { row, column } = this.units;
    const found = new Float64Array(column.count), first = row.first[unit], count = row.first[unit + 1] - first;
    for (let begun = 0; begun < count; begun += TOGETHER) {
      const rows = Array.from({ length: Math.min(count - begun, TOGETHER) }, (_, at) => first + begun + at);
      const { shape, data } = unpack((await this.app.ask("rows", { layer: this.layer.name, head: this.head, rows })).weights);
      for (let at = 0; at < data.length; at++) found[column.of[at % shape[1]]] += data[at] / count;
    }
    return found;
  }

  // Show one row; what was asked for later wins.
  async look(unit, pinned = true) {
    this.asked = unit;
    if (pinned) {
      this.app.state.row = unit;
      this.app.remember();
    }
    try {
      const weights = await this.weights(unit);
      if (this.asked !== unit) return;
      this.shown = { unit, weights };
      this.drawing.draw();
      this.list();
    } catch (error) {
      this.app.complain(error);
    }
  }

  // The strongest, as a table: what the lines show, in numbers.
  list() {
    const { unit, weights } = this.shown;
    const order = Array.from(weights.keys()).sort((one, other) => Math.abs(weights[other]) - Math.abs(weights[one])).slice(0, LISTED);
    const [from] = this.names(), cutting = this.cuts && this.app.state.more.cut === "1";
    const rows = order.filter((at) => weights[at] !== 0).map((at) => h("tr", {}, h("th", { scope: "row" }, token(this.units.column.texts[at]), h("span", { className: "place" }, ` ${at}`)),
      cutting ? null : h("td", {}, bar(weights[at])), h("td", { className: "number" }, weights[at].toFixed(4).replace("-", "−")), cutting ? h("td", { className: "cut", "data-key": at }) : null));
    const others = weights.reduce((count, one) => count + (one !== 0), 0) - rows.length;
    const rest = weights.reduce((sum, one) => sum + one, 0) - order.reduce((sum, at) => sum + weights[at], 0);
    this.partners.replaceChildren(
      h("h3", {}, token(this.units.row.texts[unit]), h("span", { className: "quiet" }, ` ${from === "written" ? "was written; it looked at" : "looks at"}`)),
      rows.length ? h("table", {}, h("tbody", {}, ...rows)) : h("p", {}, "It may look at nothing."),
      this.cutting(unit),
      h("p", { className: "quiet" }, others > 0 ? `${others} others: ${rest.toFixed(4).replace("-", "−")} together.` : ""));
    const best = order[0];
    this.readout.replaceChildren(token(this.units.row.texts[unit]), ` looks most at `, token(this.units.column.texts[best]), `: ${percent(weights[best])}`);
  }

  // Whether edges of the row that is shown can be cut: between tokens, in a row that stays.
  get cuts() {
    const { app, layer } = this;
    return !app.state.words && !app.beside && !app.views && app.model.decides && !layer.mechanism && this.asked === this.current;
  }

  // Beside every weight what cutting it alone does to the answer: asked for, since the model reads once for each.
  cutting(unit) {
    if (!this.cuts) return "";
    const on = this.app.state.more.cut === "1";
    const room = h("p", { className: "quiet cutting" });
    const button = h("button", { type: "button", "aria-pressed": String(on), onclick: () => {
      this.app.keep({ cut: on ? undefined : "1" });
      this.list();
      this.partners.querySelector(".cutting button")?.focus();
    } }, "What if each were cut?");
    room.append(button);
    if (on) this.cut(unit, room);
    return room;
  }

  async cut(unit, room) {
    const said = h("span", { role: "status" }, " Cutting …");
    room.append(said);
    try {
      const { edges } = await this.app.ask("edge_effects", { layer: this.layer.name, head: this.head, row: unit });
      if (this.shown.unit !== unit) return;
      for (const one of edges) {
        const cell = this.partners.querySelector(`[data-key="${one.key}"]`);
        if (!cell) continue;
        const shown = signed(one.change) + (one.kept ? "" : " ≠"), name = `${this.layer.name}:${this.head}:${unit}:${one.key}`;
        cell.replaceChildren(h("button", { type: "button", className: "link", title: (one.kept ? "the same answer without it" : "another answer without it") + ": show it before and after",
          onclick: () => this.app.go({ view: "whatif", more: { ...this.app.state.more, off: name, ablation: undefined } }) }, shown));
      }
      said.textContent = " The last column: how many nats the answer’s log-probability changes without that edge; ≠ where the answer is another one. It is 0 where nothing that decides the answer reads this row. Choose one to see the answer and its probabilities before and after.";
    } catch (error) {
      said.textContent = " " + error.message;
    }
  }
}

function bar(weight) {
  const made = h("div", { className: "bar" });
  made.style.width = 100 * Math.min(Math.abs(weight), 1) + "%";
  return made;
}
