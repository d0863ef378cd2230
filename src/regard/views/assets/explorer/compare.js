// Two models on one text, side by side: each with a layer and a head of its own.

import { Beside, readBeside } from "./beside.js";
import { h, selector } from "./dom.js";
import { NO_ATTENTION } from "./kinds.js";
import { OneHead } from "./head.js";

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
    const map = { draw: "map" };
    this.side(left, new Beside(app, app.reading, app.model, { layer: app.state.layer, head: app.state.head, more: map }, ({ layer, head }) => {
      Object.assign(app.state, { layer: layer.name, head });
      app.remember();
    }));
    const model = app.models.find((one) => one.name === this.other), { layer2, head2 } = app.state.more;
    right.append(h("p", { role: "status" }, "The other model is reading …"));
    try {
      const reading = await readBeside(app, model);
      right.replaceChildren();
      this.side(right, new Beside(app, reading, model, { layer: layer2, head: Number(head2 ?? 0), more: map }, ({ layer, head }) => app.keep({ layer2: layer.name, head2: head || undefined })));
    } catch (error) {
      right.replaceChildren(h("h3", {}, this.other), h("p", { className: "problem", role: "alert" }, error.message));
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
