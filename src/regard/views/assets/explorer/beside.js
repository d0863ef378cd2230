// A reading beside the one the page is about, as the views know the explorer: its own layer, head and choices.

import { Shown } from "./shown.js";

export class Beside extends Shown {
  constructor(app, reading, model, state, onchange = () => {}) {
    super();
    Object.assign(this, { app, reading, model, onchange, beside: true, root: app.root, source: app.source, stage: app.stage, cache: new Map() });
    this.state = { row: -1, words: false, more: {}, ...state };
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

  keep(changes) {
    this.state.more = { ...this.state.more, ...changes };
    this.remember();
  }

  remember() {
    this.onchange(this);
  }

  go(changes) {
    Object.assign(this.state, changes);
    this.onchange(this);
  }

  complain(error) {
    this.app.complain(error);
  }
}

// The same text read by another model, or by the same one at another step, while the page says that it waits.
export async function readBeside(app, model, changes = {}) {
  const { text, target, tokens } = app.state;
  app.root.dataset.pending = ++app.pending;
  try {
    return await app.source.read({ ...app.asking(model, text, target, tokens), ...changes });
  } finally {
    app.root.dataset.pending = --app.pending;
  }
}
