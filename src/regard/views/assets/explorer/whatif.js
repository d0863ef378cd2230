// Heads switched off: what each alone does to the answer, and the answer without those that are chosen.

import { choice, cutInWords, fixed, h, percent, signed, token } from "./dom.js";
import { decides } from "./kinds.js";
import { among } from "./said.js";

const MOST = 16; // decisions that are listed
const NAMED = /^[\w.-]{1,60}:(\d{1,4}|all)(:\d{1,9}:\d{1,9})?$/; // a head, or an edge of one

export class WhatIf {
  static id = "whatif";
  static title = "What if";
  static lead = "A weight says what a head reads, not whether it matters. Here each head is switched off alone: the number is how many nats the answer’s log-probability falls (orange) or rises (blue) without it. Choose heads to switch them off together; single edges are cut under “One head”.";
  static refuses = decides;

  constructor(app, body) {
    this.app = app;
    const kept = app.state.more;
    this.off = new Set((kept.off ?? "").split(",").filter((one) => NAMED.test(one)));
    this.ablation = among(kept.ablation, ["zero", "mean"], "zero");
    this.grid = h("div", {}, h("p", { role: "status" }, "Switching off every head, one at a time …"));
    this.outcome = h("div", { className: "compared", role: "status" });
    body.append(choice("A head that is off gives", [["zero", "nothing"], ["mean", "its mean over the text"]], this.ablation, (ablation) => { this.ablation = ablation; this.keep(); this.load(); }), this.outcome, this.grid);
    this.load();
  }

  keep() {
    this.app.keep({ off: [...this.off].join(",") || undefined, ablation: this.ablation === "zero" ? undefined : this.ablation });
  }

  async load() {
    try {
      this.effects = await this.app.ask("head_effects", { ablation: this.ablation });
      this.draw();
    } catch (error) {
      this.grid.replaceChildren(h("p", { className: "problem", role: "alert" }, error.message));
      return;
    }
    this.update();
  }

  draw() {
    const { heads } = this.effects, most = Math.max(...heads.map((one) => Math.abs(one.change)), 1e-9);
    const layers = [...new Set(heads.map((one) => one.layer))];
    this.grid.replaceChildren(
      h("div", { className: "effects" }, ...layers.map((layer) => h("section", {}, h("h3", {}, layer), h("div", { className: "heads" }, ...heads.filter((one) => one.layer === layer).map((one) => this.button(one, most)))))),
      h("p", { className: "quiet" }, "Effects of single heads do not add up: when one is off, others take over. The probability changes by the factor e^change."));
  }

  button(one, most) {
    const name = `${one.layer}:${one.head}`;
    const made = h("button", { type: "button", className: "effect " + (one.change < 0 ? "negative" : "positive"), "data-head": name, "aria-pressed": String(this.off.has(name)),
      "aria-label": `${one.layer}, head ${one.head}: ${fixed(one.change)} nats without it${one.kept ? "" : ", another answer"}. Switch off`,
      onclick: () => {
        if (!this.off.delete(name)) this.off.add(name);
        made.setAttribute("aria-pressed", String(this.off.has(name)));
        this.keep();
        this.update();
      } }, h("span", { className: "name" }, `head ${one.head}`), h("b", {}, signed(one.change)), h("span", { className: "quiet" }, one.kept ? "same answer" : "another answer"));
    made.style.setProperty("--size", Math.abs(one.change) / most);
    return made;
  }

  inWords(name) {
    const { layers, tokens } = this.app.reading, layer = layers.find((one) => one.name === name.split(":")[0]);
    return cutInWords(name, layer ? [tokens[layer.rows], tokens[layer.columns]] : null);
  }

  async update() {
    if (!this.off.size) {
      this.outcome.replaceChildren(h("p", { className: "quiet" }, "Every head is on."));
      return;
    }
    const without = [...this.off], asked = (this.asked = {});
    try {
      const record = await this.app.ask("what_if", { without, ablation: this.ablation });
      if (this.asked === asked) this.tell(record, without);
    } catch (error) {
      if (this.asked === asked) this.app.complain(error);
    }
  }

  tell(record, without) {
    const { answers, decisions } = record;
    const likely = (options) => options.slice(0, 3).flatMap((one, at) => [at ? ", " : "", token(one.name), ` ${percent(one.probability)}`]);
    const rows = decisions.slice(0, MOST).map((one) => h("tr", {}, h("th", { scope: "row" }, token(one.chosen)), h("td", {}, percent(Math.exp(one.before))), h("td", {}, percent(Math.exp(one.after))),
      h("td", { className: "word" }, ...likely(one.likeliest_after))));
    this.outcome.replaceChildren(
      h("p", {}, `Without ${without.map((one) => this.inWords(one)).join("; ")}: `, h("button", { type: "button", onclick: () => { this.off.clear(); this.keep(); this.draw(); this.update(); } }, without.some(isEdge) ? "Nothing cut again" : "All on again")),
      answers ? h("p", { className: "output" }, h("span", { className: "arrow" }, "before "), h("bdi", {}, answers.before), h("br"), h("span", { className: "arrow" }, "after "), h("bdi", {}, answers.after)) : "",
      h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "Each decision before and after" }, h("table", {},
        h("thead", {}, h("tr", {}, ...["decided", "before", "after"].map((name) => h("th", { scope: "col" }, name)), h("th", { scope: "col", className: "word" }, "likeliest after"))), h("tbody", {}, ...rows))),
      decisions.length > MOST ? h("p", { className: "quiet" }, `and ${decisions.length - MOST} more decisions`) : "",
      h("p", {}, `The whole answer: ${signed(record.change)} nats, ${factor(record.change)} as likely.`));
  }
}

function isEdge(name) {
  return name.split(":").length > 2;
}

function factor(change) {
  const times = Math.exp(change);
  return times >= 0.01 ? `${times.toFixed(2)} times` : `${times.toExponential(0)} times`;
}
