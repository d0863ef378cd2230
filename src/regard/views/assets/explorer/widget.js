// The explorer in a notebook: one recording, asked by messages to Python.

import { Explorer } from "./explorer.js";
import { Refusal } from "./source.js";

class WidgetSource {
  constructor(model) {
    this.model = model;
    this.waiting = new Map();
    this.count = 0;
    model.on("msg:custom", (message) => {
      const promised = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      if (message.error) promised?.fail(new Refusal(message));
      else promised?.done(message.answer);
    });
  }

  models() {
    return [{ name: "", facts: {}, task: "", continues: false, writes: false, example: "", free: false }];
  }

  read() {
    return { reading: "", model: "", text: "", target: null, output: null, notes: [], seconds: 0, ...this.model.get("opening").record };
  }

  ask(what, { reading, ...asked }) {
    const id = ++this.count;
    return new Promise((done, fail) => {
      this.waiting.set(id, { done, fail });
      this.model.send({ id, what, asked });
    });
  }
}

export function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "explorer";
  el.append(root);
  const { views, state } = model.get("opening");
  new Explorer(root, new WidgetSource(model), { views, opening: state }).start();
}
