// A model at the steps whose weights its training kept: a slider, and under it all heads as they were.

import { Beside, readBeside } from "./beside.js";
import { OneHead } from "./head.js";
import { h } from "./dom.js";
import { Overview } from "./overview.js";

const SOON = 150;

export class Training {
  static id = "training";
  static title = "Training";
  static lead = "The same text, read by the model as it was while it trained. Move the slider to watch the heads form.";
  static idle = (app) => !app.models.some((one) => one.snapshots?.length);
  static refuses = (app) => (app.model.snapshots?.length ? null : "This run kept no weights on purpose while it trained. Train with --set \"training.snapshots=[0,50,100,200]\" and the heads can be watched forming.");

  constructor(app, body) {
    this.app = app;
    this.steps = app.model.snapshots;
    this.at = Math.max(this.steps.indexOf(Number(app.state.more.step)), 0);
    this.value = h("output", {}, "");
    this.slider = h("input", { type: "range", name: "step", min: 0, max: this.steps.length - 1, step: 1, value: this.at, oninput: () => {
      this.at = Number(this.slider.value);
      this.name();
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.load(), SOON);
    } });
    this.answer = h("p", { className: "output" });
    this.area = h("div", {});
    body.append(h("label", { className: "slider" }, h("span", {}, h("b", {}, "After step "), this.value, ` of ${this.steps.at(-1).toLocaleString("en")}`), this.slider), this.answer, this.area);
    this.state = { layer: app.layer?.name, head: 0, more: {} };
    this.name();
    this.load();
  }

  name() {
    this.value.textContent = this.steps[this.at].toLocaleString("en");
    this.slider.setAttribute("aria-valuetext", `step ${this.steps[this.at]}`);
  }

  async load() {
    const step = this.steps[this.at], asked = (this.asked = {});
    this.app.keep({ step });
    try {
      const reading = await readBeside(this.app, this.app.model, { step });
      if (this.asked !== asked) return;
      this.beside = new Beside(this.app, reading, this.app.model, this.state, (beside) => this.changed(beside));
      this.answer.replaceChildren(...(reading.output === null ? [] : [h("span", { className: "arrow" }, "Its answer then: "), h("bdi", {}, reading.output || "nothing")]));
      this.draw();
    } catch (error) {
      if (this.asked === asked) this.app.complain(error);
    }
  }

  draw() {
    this.view?.close?.();
    const body = h("div", {}), { beside } = this;
    if (this.state.view === "head") {
      this.area.replaceChildren(h("button", { type: "button", onclick: () => { this.state.view = "overview"; this.draw(); } }, "All heads"), body);
      this.view = new OneHead(beside, body);
    } else {
      this.area.replaceChildren(body);
      this.view = new Overview(beside, body);
    }
  }

  // A head was chosen, or another way to show them: it stays so at the next step.
  changed({ state }) {
    const opened = state.view === "head" && this.state.view !== "head";
    this.state = { ...this.state, ...state };
    if (opened) this.draw();
  }

  resize() {
    this.view?.resize?.();
  }

  close() {
    clearTimeout(this.soon);
    this.view?.close?.();
  }
}
