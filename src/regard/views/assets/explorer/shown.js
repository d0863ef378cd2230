// A reading, and what of it is shown: what the explorer and each side of a comparison have in common.

import { whole } from "./said.js";

export class Shown {
  get layer() {
    const { layers } = this.reading;
    return layers.find((one) => one.name === this.state.layer) ?? layers.find((one) => one.kind === "cross") ?? layers[0];
  }

  get head() {
    return whole(this.state.head, 0, 0, this.layer.heads - 1);
  }

  // A question about the reading, asked once.
  ask(what, asked = {}, signal) {
    const key = what + JSON.stringify(asked);
    if (!this.cache.has(key)) {
      const { reading, part } = this.reading;
      const answer = this.source.ask(what, { reading, part, ...asked }, signal);
      this.cache.set(key, answer);
      this.root.dataset.pending = ++this.pending;
      answer.catch(() => this.cache.delete(key)).finally(() => { this.root.dataset.pending = --this.pending; });
      if (this.cache.size > 400) this.cache.delete(this.cache.keys().next().value);
    }
    return this.cache.get(key);
  }
}
