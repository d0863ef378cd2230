// The four steps of one token in one head, with the numbers that were really there, down to each product.

import { label } from "../weights.js";
import { choice, fixed, h, percent, selector, token } from "./dom.js";
import { NO_ATTENTION, sideNames } from "./kinds.js";
import { whole } from "./said.js";

const FIRST = 8; // numbers of a vector that are shown before more are asked for

export class FourSteps {
  static id = "steps";
  static title = "Four steps";
  static lead = "How one head comes to its attention for one token: compare, scale, softmax, add up. Choose a token, then one of the tokens it looks at, to see every product.";
  static refuses(app) {
    if (!app.reading.layers.length) return NO_ATTENTION;
    const { mechanism } = app.layer;
    return mechanism ? `${mechanism} does not compare a query with each key: there are no four steps. Its effective weights are under “One head”.` : null;
  }

  constructor(app, body) {
    this.app = app;
    this.body = body;
    this.all = false;
    this.build();
  }

  build() {
    const { app } = this, { layer } = app, { layers, tokens } = app.reading;
    this.rows = tokens[layer.rows];
    this.row = app.state.row >= 0 && app.state.row < this.rows.length ? app.state.row : Math.min(1, this.rows.length - 1);
    const [from] = sideNames(layer);
    this.area = h("div", {});
    const change = (changes, focus) => {
      const { key, ...more } = app.state.more; // of another row
      app.go({ words: false, more, ...changes });
      app.stage.querySelector(focus)?.focus();
    };
    const own = layers.filter((one) => !one.mechanism);
    this.body.replaceChildren(h("div", { className: "controls" },
      selector("Layer", own.map((one) => [one.name, one.name]), layer.name, (name) => change({ layer: name, row: -1 }, "select")),
      choice("Head", Array.from({ length: layer.heads }, (_, head) => [head, String(head)]), app.head, (head) => change({ head }, ".heads-choice input:checked"), "heads-choice"),
      selector(from === "written" ? "Token that was written" : "Token that looks", this.rows.map((text, at) => [String(at), `${at}: ${label(text)}`]), String(this.row), (row) => change({ row: Number(row) }, "label:nth-of-type(2) select"))), this.area);
    this.fill();
  }

  async fill() {
    try {
      const key = whole(this.app.state.more.key, undefined, 0, Infinity);
      this.record = await this.app.ask("steps", { layer: this.app.layer.name, head: this.app.head, row: this.row, ...(key === undefined ? {} : { key }) });
      this.draw();
    } catch (error) {
      this.area.replaceChildren();
      this.app.complain(error);
    }
  }

  draw() {
    const { record, app } = this, { query, key, value, output } = record.vectors;
    const one = record.keys.find(({ place }) => place === record.at), from = token(record.token), to = () => token(one.key);
    this.area.replaceChildren(
      this.keys(),
      h("section", { className: "step" }, h("h3", {}, "1  Compare: ", from, " with ", to()),
        record.dotted
          ? h("p", {}, "The query of the one and the key of the other are multiplied number by number; the products add up to the score ", h("b", {}, fixed(one.score)), ".")
          : h("p", {}, "This layer compares them otherwise than by a product (an additive similarity, for example); the score is ", h("b", {}, fixed(one.score)), "."),
        record.dotted ? this.products([["query", query], ["key", key], ["product", query.map((number, at) => number * key[at])]], 2) : null),
      h("section", { className: "step" }, h("h3", {}, "2  Scale"),
        h("p", { className: "formula" }, `${fixed(one.score)} × ${fixed(record.scale, 4)}` + (one.bias ? ` + ${fixed(one.bias)} (position)` : "") + " = ", h("b", {}, one.scaled === null ? "−∞" : fixed(one.scaled))),
        h("p", { className: "quiet" }, record.scale === 1 ? "This head does not scale." : `${fixed(record.scale, 4)} is 1/√${Math.round(1 / record.scale ** 2)}: the more numbers a vector has, the larger its products grow; this takes that back.`,
          one.scaled === null ? " This token may not be seen from here: it is masked." : "")),
      this.whyRoom = h("section", { className: "step" }),
      h("section", { className: "step" }, h("h3", {}, "3  Softmax"),
        h("p", { className: "formula" }, `exp(${one.scaled === null ? "−∞" : fixed(one.scaled)} − ${fixed(record.largest).replace("−", "(−") + (record.largest < 0 ? ")" : "")}) / ${fixed(record.sum)} = ${fixed(one.exp)} / ${fixed(record.sum)} = `, h("b", {}, percent(one.weight))),
        h("p", { className: "quiet" }, `${fixed(record.largest)} is the largest of the scores, ${fixed(record.sum)} the sum of all exponentials: so all weights add up to 100 %.`)),
      h("section", { className: "step" }, h("h3", {}, "4  Add up"),
        h("p", {}, "Each token’s value counts by its weight; the sum over all of them is what the head gives on."),
        this.products([["value of " + label(one.key), value], [`× ${percent(one.weight)}`, value.map((number) => number * one.weight)], ["sum over all tokens", output]])));
    if (record.dotted && app.model.decides && !app.views) this.why();
  }

  // Where the score came from: asked for, since the text is read anew for it.
  async why() {
    const room = this.whyRoom, wanted = this.app.state.more.why === "1";
    room.replaceChildren(h("button", { type: "button", "aria-expanded": String(wanted), className: "why-button", onclick: () => {
      this.app.keep({ why: wanted ? undefined : "1" });
      this.why();
      room.querySelector("button").focus();
    } }, wanted ? "Why this score? ▾" : "Why this score? ▸"));
    if (!wanted) return;
    const waiting = h("p", { role: "status" }, "Splitting it by where its parts came from …");
    room.append(waiting);
    try {
      const parts = await this.app.ask("why", { layer: this.app.layer.name, head: this.app.head, row: this.row, key: this.record.at });
      if (room !== this.whyRoom) return;
      waiting.replaceWith(
        h("p", { className: "quiet" }, "A vector is a sum: the token’s embedding, its position, what each earlier head and feed-forward network added. So the score is a sum as well. It says where the number came from, not what it would have been without a part (norms are frozen at their value)."),
        h("div", { className: "parts" }, bars("By what the one that looks is made of", parts.by_query), bars("By what the one looked at is made of", parts.by_key)),
        h("p", { className: "quiet" }, `All bars of one side add up to ${fixed(parts.score)}` + (Math.abs(parts.rounding) >= 5e-4 ? `, but for the run’s own rounding of ${fixed(parts.rounding)}` : "") + ". The largest pairs: ",
          ...parts.pairs.slice(0, 4).map(([from, to, part], at) => `${at ? ", " : ""}${from} with ${to} ${fixed(part)}`), "."));
    } catch (error) {
      waiting.textContent = error.message;
    }
  }

  // What the token compares itself with: choose one.
  keys() {
    const { record } = this;
    const order = [...record.keys];
    const shown = order.length <= 14 || this.everyKey ? order : order.sort((one, other) => other.weight - one.weight || one.place - other.place).slice(0, 12);
    const rows = shown.map((one) => {
      const chosen = one.place === record.at;
      return h("tr", { className: chosen ? "chosen" : "" },
        h("th", { scope: "row" }, h("button", { type: "button", className: "link", "aria-pressed": String(chosen), onclick: () => this.choose(one.place) }, token(one.key)), h("span", { className: "place" }, ` ${one.place}`)),
        h("td", {}, fixed(one.score)), h("td", {}, one.scaled === null ? "masked" : fixed(one.scaled)), h("td", {}, fixed(one.exp)), h("td", {}, h("b", {}, percent(one.weight))));
    });
    const more = order.length > shown.length ? h("button", { type: "button", onclick: () => { this.everyKey = true; this.draw(); } }, `Show ${order.length} of ${record.count}`) : null;
    return h("div", {}, h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "Scores of every token" }, h("table", { className: "keys" },
      h("thead", {}, h("tr", {}, ...["looks at", record.dotted ? "1  q·k" : "1  score", "2  scaled", "3  exp", "weight"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, ...rows))), more);
  }

  async choose(at) {
    this.app.keep({ key: at });
    await this.fill();
    this.area.querySelector("[aria-pressed=true]")?.focus();
  }

  // Vectors above each other, entry by entry, each number on its colour; `sums`, which row adds up.
  products(rows, summed = -1) {
    const width = rows[0][1].length, shown = this.all ? width : Math.min(width, FIRST);
    const scale = Math.max(...rows.flatMap(([, numbers]) => numbers.map(Math.abs)), 1e-9);
    const cell = (number) => {
      const made = h("td", { className: number < 0 ? "negative" : "positive" }, fixed(number, 2));
      made.style.setProperty("--size", Math.min(Math.abs(number) / scale, 1));
      return made;
    };
    const more = width > shown ? h("button", { type: "button", onclick: () => { this.all = true; this.draw(); } }, `All ${width} numbers`) : null;
    return h("div", {}, h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": rows.map(([name]) => name).join(", ") }, h("table", { className: "vectors" }, h("tbody", {}, ...rows.map(([name, numbers], at) =>
      h("tr", {}, h("th", { scope: "row" }, name), ...numbers.slice(0, shown).map(cell),
        width > shown ? h("td", {}, "…") : null,
        summed >= 0 ? h("td", { className: "sum" }, at === summed ? "Σ " + fixed(numbers.reduce((sum, one) => sum + one, 0)) : "") : null))))), more);
  }
}

function bars(title, parts) {
  const most = Math.max(...parts.map(([, part]) => Math.abs(part)), 1e-9);
  return h("div", {}, h("h4", {}, title), h("table", {}, h("tbody", {}, ...parts.map(([name, part]) => {
    const bar = h("div", { className: "bar " + (part < 0 ? "below" : "") });
    bar.style.width = (100 * Math.abs(part)) / most + "%";
    return h("tr", {}, h("th", { scope: "row" }, name), h("td", { className: "long" }, bar), h("td", { className: "number" }, fixed(part)));
  }))));
}
