// The explorer: a model, a text, and the views of what the model made of it. What is shown is in `state`, which is also
// the part of the address after #, so that a link brings it back.
//
//   source.js     where answers come from           overview.js   all heads, small
//   dom.js        elements in one line              head.js       one head: lines, map, text
//   ../colours.js, ../weights.js                    …             one file for each view

import { Colours } from "../colours.js";
import { h, selector } from "./dom.js";
import { Overview } from "./overview.js";
import { OneHead } from "./head.js";
import { FourSteps } from "./steps.js";
import { Decoding } from "./decoding.js";
import { Tokens } from "./tokens.js";
import { Meaning } from "./meaning.js";
import { WhatIf } from "./whatif.js";
import { Flow, Lens, Patch } from "./lens.js";
import { SideBySide } from "./compare.js";
import { Training } from "./training.js";
import { whole } from "./said.js";
import { Shown } from "./shown.js";

export const VIEWS = [Overview, OneHead, FourSteps, Decoding, WhatIf, Lens, Patch, Flow, Tokens, Meaning, SideBySide, Training];
const MOST_WRITTEN = 1024, LAST = 2 ** 31 - 1;
const LONG = 4000; // characters of a text that a model does not go on with unless it is asked to
const LONGEST_LINK = 6000; // characters of a text that a link carries
const FRESH = { view: "overview", layer: "", head: 0, row: -1, words: false, more: {} }; // `more` is what views keep themselves

export class Explorer extends Shown {
  constructor(root, source, { linked = false, views = null, opening = {} } = {}) {
    super();
    this.views = views; // those of a recording alone, which is not asked anew; all if null
    this.opening = opening;
    this.root = root;
    this.source = source;
    this.linked = linked;
    this.state = { ...FRESH, model: "", text: "", target: "", tokens: "" };
    this.reading = null;
    this.pending = 0; // questions that were not answered yet
    root.dataset.pending = 0;
    this.colours = new Colours(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = new Colours(root);
      this.show();
    });
  }

  async start() {
    this.root.replaceChildren(h("p", { role: "status" }, "Loading …"));
    try {
      this.models = await this.source.models();
    } catch (error) {
      this.root.replaceChildren(h("p", { role: "alert", className: "problem" }, error.message));
      return;
    }
    this.restore();
    this.build();
    if (this.linked) addEventListener("hashchange", () => this.follow());
    addEventListener("resize", () => this.view?.resize?.());
    await this.read();
  }

  get model() {
    return this.models.find((one) => one.name === this.state.model) ?? this.models[0];
  }

  // What the address says.
  restore() {
    const said = this.linked ? Object.fromEntries(new URLSearchParams(location.hash.slice(1))) : {};
    const { model, text, target, tokens, view = FRESH.view, layer = FRESH.layer, head = FRESH.head, row = FRESH.row, words, ...more } = said;
    this.state = { model, text, target, tokens, view, layer, head: whole(head, 0, 0, LAST), row: whole(row, -1, -1, LAST), words: words === "1", more, ...this.opening };
    if (!this.models.some((one) => one.name === this.state.model)) this.state.model = this.models[0].name;
    this.state.text ??= this.model.example;
    this.state.target ??= "";
    this.state.tokens = String(whole(tokens, "", 0, MOST_WRITTEN));
  }

  remember() {
    if (!this.linked) return;
    const said = { model: this.state.model, view: this.state.view };
    for (const key of ["target", "tokens", "layer"]) if (this.state[key]) said[key] = this.state[key];
    for (const [key, value] of Object.entries(this.state.more)) if (value !== undefined) said[key] = value;
    if (this.state.head) said.head = this.state.head;
    if (this.state.row >= 0) said.row = this.state.row;
    if (this.state.words) said.words = 1;
    if (this.state.text.length <= LONGEST_LINK) said.text = this.state.text;
    this.written = "#" + new URLSearchParams(said);
    history.replaceState(null, "", this.written);
  }

  // Another link was followed in this page.
  follow() {
    if (location.hash === this.written) return;
    const before = JSON.stringify(this.asked());
    this.restore();
    this.build();
    if (JSON.stringify(this.asked()) === before && this.reading) this.show();
    else this.read();
  }

  build() {
    this.status = h("p", { className: "status", role: "status" });
    this.problem = h("p", { className: "problem", role: "alert", hidden: true });
    this.outcome = h("section", { className: "outcome", "aria-label": "The model’s answer" });
    this.tabs = h("nav", { className: "tabs", "aria-label": "Views" });
    this.stage = h("main", { className: "stage", id: "stage", tabIndex: -1 });
    this.root.replaceChildren(
      h("a", { className: "skip", href: "#stage", onclick: (event) => { event.preventDefault(); this.stage.focus(); } }, "Skip to the view"),
      ...(this.views ? [] : [h("header", {}, h("h1", {}, "Regard", h("span", {}, "the explorer")), this.modelChoice()), this.form()]),
      this.problem,
      this.status,
      this.outcome,
      this.tabs,
      this.stage,
    );
  }

  modelChoice() {
    const facts = Object.entries(this.model.facts).map(([name, value]) => `${name}: ${value}`).join(" · ");
    const chosen = this.models.length > 1
      ? selector("Model", this.models.map((one) => [one.name, one.name]), this.model.name, (name) => this.change(name))
      : h("span", { className: "model" }, this.model.name);
    return h("div", { className: "which" }, chosen, h("p", { className: "facts" }, facts));
  }

  change(name) {
    const example = this.state.text === this.model.example;
    const { key, off, forced, step, ...more } = this.state.more; // what they name is of that model
    Object.assign(this.state, { model: name, layer: "", head: 0, row: -1, more });
    if (example) this.state.text = this.model.example;
    this.build();
    this.read();
  }

  form() {
    const { continues, writes, reads_source } = this.model;
    this.text = h("textarea", { rows: 2, value: this.state.text, spellcheck: false, dir: "auto", name: "text", onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.submit(event);
    } });
    this.target = h("input", { type: "text", name: "target", value: this.state.target, dir: "auto", autocomplete: "off" });
    this.tokens = h("input", { type: "number", name: "tokens", value: this.state.tokens, min: 0, max: MOST_WRITTEN, placeholder: continues ? "20" : "" });
    const more = [];
    if (writes && reads_source) more.push(h("label", {}, "Its answer is given (optional)", this.target));
    if (continues) more.push(h("label", { className: "short" }, "Tokens to write", this.tokens));
    return h("form", { className: "ask", onsubmit: (event) => this.submit(event) },
      h("label", { className: "text" }, "Text for the model to read", this.text),
      h("div", { className: "more" }, ...more, h("button", { className: "main", type: "submit" }, "Read it")),
    );
  }

  submit(event) {
    event.preventDefault();
    Object.assign(this.state, { text: this.text.value, target: this.target.value, tokens: this.tokens.value, row: -1 });
    this.leave();
    this.read();
  }

  // What was chosen of the text before: heads that are off stay so, its keys and edges are not those of another.
  leave() {
    const { key, off = "", ...more } = this.state.more;
    const heads = off.split(",").filter((one) => one.split(":").length === 2);
    this.state.more = heads.length ? { ...more, off: heads.join(",") } : more;
  }

  asked() {
    const { text, target, tokens } = this.state;
    return this.asking(this.model, text, target, tokens);
  }

  // What a model is asked: what means nothing to it is left out.
  asking(model, text, target, tokens) {
    const asked = { model: model.name, text };
    if (target && model.writes && model.reads_source) asked.target = target;
    if (model.continues) asked.new_tokens = tokens === "" ? (text.length > LONG ? 0 : 20) : Number(tokens);
    return asked;
  }

  async read() {
    const asked = this.asked();
    this.latest = asked;
    this.problem.hidden = true;
    this.status.textContent = "The model is reading …";
    this.root.setAttribute("aria-busy", "true");
    try {
      const reading = await this.source.read(asked);
      if (this.latest !== asked) return;
      this.reading = reading;
      this.cache = new Map();
      this.status.textContent = "";
      this.tell();
      this.show();
    } catch (error) {
      if (this.latest !== asked) return;
      this.keepBefore(asked);
      this.complain(error);
    } finally {
      if (this.latest === asked) this.root.removeAttribute("aria-busy");
    }
  }

  // A text that cannot be read: what was read before stays, and says that it is not this; of another model it goes.
  keepBefore({ model }) {
    if (this.reading?.model !== model) this.reading = null;
    this.status.textContent = this.reading ? "What is shown below is still of the text before." : "";
  }

  complain(error) {
    if (error.name === "AbortError") return;
    this.problem.textContent = error.message;
    this.problem.hidden = false;
  }

  // What the model made of the text.
  tell() {
    const { output, layers, notes, parts } = this.reading;
    const count = Math.max(0, ...this.reading.tokens.map((one) => one.length));
    const said = [];
    if (output !== null) said.push(h("p", { className: "output" }, h("span", { className: "arrow" }, this.model.continues ? "It goes on: " : "Its answer: "), h("bdi", {}, output || "nothing")));
    const heads = layers.reduce((sum, one) => sum + one.heads, 0);
    if (layers.length) said.push(h("p", { className: "count" }, `${layers.length} ${layers.length === 1 ? "layer" : "layers"} of attention, ${heads} ${heads === 1 ? "head" : "heads"}, ${count.toLocaleString("en")} tokens.` + (parts > 1 ? ` The text was read in ${parts} windows; this is the first.` : "")));
    for (const note of notes) said.push(h("p", { className: "note" }, note));
    this.outcome.replaceChildren(...said);
  }

  // The view that was chosen.
  show() {
    this.tabs.replaceChildren(...VIEWS.filter((View) => this.views?.includes(View.id) ?? (View.id === this.state.view || !View.idle?.(this))).map((View) => h("button", {
      type: "button", "data-view": View.id, "aria-current": View.id === this.state.view ? "page" : undefined, onclick: () => this.go({ view: View.id }),
    }, View.title)));
    const current = this.tabs.querySelector("[aria-current]");
    if (current) this.tabs.scrollLeft = current.offsetLeft - this.tabs.offsetLeft - (this.tabs.clientWidth - current.offsetWidth) / 2; // on a phone
    if (!this.reading) return;
    const View = VIEWS.find((one) => one.id === this.state.view) ?? VIEWS[0];
    this.view?.close?.();
    const refused = View.refuses?.(this);
    const body = h("div", { className: "view " + View.id });
    this.stage.replaceChildren(h("h2", {}, View.title), h("p", { className: "lead" }, refused ?? View.lead), body);
    this.stage.setAttribute("aria-label", View.title);
    this.view = refused ? null : new View(this, body);
    this.remember();
  }

  // A view's own choice, kept in the link.
  keep(changes) {
    this.state.more = { ...this.state.more, ...changes };
    this.remember();
  }

  // Something else is to be shown: another view, layer, head …
  go(changes) {
    Object.assign(this.state, changes);
    const focus = document.activeElement?.dataset?.view;
    this.show();
    if (focus) this.tabs.querySelector(`[data-view="${focus}"]`)?.focus();
  }
}
