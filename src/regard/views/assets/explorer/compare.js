// Two models on one text, side by side: each with a layer and a head of its own.

import { h, selector } from "./dom.js";
import { NO_ATTENTION } from "./kinds.js";
import { OneHead } from "./head.js";
import { Shown } from "./shown.js";

export class SideBySide {
  static id = "compare";
  static title = "Side by side";
  static lead = "The same text in two models, or two heads of one model. Each side has a layer and a head of its own.";

  constructor(app, body) {
    this.app = app;
    const kept = app.state.more;
    const others = app.models.map((one) => one.name);
    this.other = others.includes(kept.other) ? kept.other : others.find((name) => name !== app.model.name) ?? app.model.name;
    this.sides = h("div", { className: "sides" });
    body.append(h("div", { className: "controls" }, selector("Beside it", others.map((name) => [name, name]), this.other, (other) => {
      this.other = other;
      app.keep({ other, layer2: undefined, head2: undefined });
      this.fill();
    })), this.sides);
    this.fill();
  }

  async fill() {
    const { app } = this;
    const [left, right] = [0, 1].map(() => h("section", { className: "side" }));
    this.sides.replaceChildren(left, right);
    this.side(left, new Beside(app, app.reading, app.model, "", app.state));
    const model = app.models.find((one) => one.name === this.other);
    const wanted = app.asked.call({ state: app.state, model, asked: app.asked });
    right.append(h("p", { role: "status" }, "The other model is reading …"));
    app.root.dataset.pending = ++app.pending;
    try {
      const reading = await app.source.read({ ...wanted, model: this.other });
      right.replaceChildren();
      this.side(right, new Beside(app, reading, model, "2", { layer: app.state.more.layer2, head: Number(app.state.more.head2 ?? 0) }));
    } catch (error) {
      right.replaceChildren(h("h3", {}, this.other), h("p", { className: "problem", role: "alert" }, error.message));
    } finally {
      app.root.dataset.pending = --app.pending;
    }
  }

  side(place, beside) {
    const { reading, model } = beside;
    place.append(h("h3", {}, model.name));
    if (reading.output !== null) place.append(h("p", { className: "output" }, h("span", { className: "arrow" }, model.continues ? "It goes on: " : "Its answer: "), h("bdi", {}, reading.output || "nothing")));
    if (!reading.layers.length) {
      place.append(h("p", {}, NO_ATTENTION));
      return;
    }
    const body = h("div", {});
    place.append(body);
    beside.view = new OneHead(beside, body);
    this.views = [...(this.views ?? []), beside.view];
  }

  resize() {
    for (const view of this.views ?? []) view.resize();
  }

  close() {
    for (const view of this.views ?? []) view.close();
  }
}

// One side, as the head's view knows the explorer: its own reading, layer and head.
class Beside extends Shown {
  constructor(app, reading, model, mark, { layer, head }) {
    super();
    Object.assign(this, { app, reading, model, mark, beside: true, root: app.root, source: app.source, cache: new Map() });
    this.state = { layer, head, row: -1, words: false, more: { draw: "map" } };
  }

  get colours() {
    return this.app.colours;
  }

  get pending() {
    return this.app.pending;
  }

  set pending(count) {
    this.app.pending = count;
  }

  remember() {
    if (this.mark) this.app.keep({ layer2: this.layer.name, head2: this.head || undefined });
    else Object.assign(this.app.state, { layer: this.layer.name, head: this.head });
    this.app.remember();
  }

  complain(error) {
    this.app.complain(error);
  }
}
