// What the model would decide if it ended after each layer; which vectors carry the answer; attention in three ways.

import { h, percent, selector, token } from "./dom.js";
import { grid } from "./grid.js";
import { atOnce, decides, streams } from "./kinds.js";

export class Lens {
  static id = "lens";
  static title = "Layer by layer";
  static lead = "What the model would decide if it ended after each layer (the logit lens): the final norm and the head read each layer’s vector. It shows what the head reads there, not all that the layer knows.";

  static refuses = streams;

  constructor(app, body) {
    body.append(h("p", { role: "status" }, "Asking every layer …"));
    app.ask("lens").then((record) => body.replaceChildren(table(record))).catch((error) => body.replaceChildren(h("p", { className: "problem", role: "alert" }, error.message)));
  }
}

function table(record) {
  const rows = record.layers.map((layer, at) => h("tr", {}, h("th", { scope: "row" }, layer), ...record.cells[at].map((one) => {
    const share = Math.exp(one.log_probability), [best] = one.likeliest;
    const made = h("td", { className: "positive decided", title: one.likeliest.map(({ name, probability }) => `${name} ${percent(probability)}`).join(", ") },
      token(best.name), h("span", { className: "quiet" }, percent(best.probability) + (one.rank > 1 ? `, decided: rank ${one.rank}` : "")));
    made.style.setProperty("--size", share);
    return made;
  }))).reverse();
  return h("div", {},
    h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "What each layer would decide" }, h("table", { className: "vectors" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "after"), ...record.decided.map((one) => h("th", { scope: "col" }, token(one))))), h("tbody", {}, ...rows))),
    h("p", { className: "quiet" }, "The last layer is on top. Each cell has the likeliest token there; the stronger its colour, the likelier what the whole model decided (above the columns)."));
}

export class Flow {
  static id = "flow";
  static title = "Three ways";
  static lead = "One layer’s attention, three times: the weights themselves, and two things people compute from them. They need not agree, and each shows something else.";
  static refuses = (app) => decides(app) ?? atOnce(app);

  constructor(app, body) {
    this.app = app;
    this.area = h("div", {});
    body.append(h("div", { className: "controls" }, selector("Layer", app.reading.layers.filter((one) => !one.mechanism).map((one) => [one.name, one.name]), app.layer.name, (layer) => {
      app.state.layer = layer;
      app.remember();
      this.load();
    })), this.area);
    this.load();
  }

  async load() {
    this.area.replaceChildren(h("p", { role: "status" }, "Computing …"));
    const asked = (this.asked = {});
    try {
      const record = await this.app.ask("flow", { layer: this.app.layer.name });
      if (this.asked !== asked) return;
      const ways = [
        ["Raw weights", "raw", "The mean of the layer’s heads: how much a row reads of a token here. Nothing of what the token carries by then, nor of what becomes of it."],
        ["Attention rollout", "rollout", "All layers below multiplied, half of each the token itself: how much of each input token could have come this far, if values, norms and feed-forward networks did nothing. It is the same whatever the model decides."],
        ["Gradient × attention", "gradient", `How much the log-probability of the answer (${record.answer.join("")}) would rise with each weight, to first order; brown holds it back. For large changes a slope need not hold: cutting the edge tells.`],
      ];
      this.area.replaceChildren(h("div", { className: "ways" + (record.keys.length > 24 ? " large" : "") }, ...ways.map(([title, name, meaning]) => h("section", { className: "step" }, h("h3", {}, title), h("p", { className: "quiet" }, meaning), grid(title, record.rows, record.keys, record[name])))));
    } catch (error) {
      if (this.asked === asked) this.area.replaceChildren(h("p", { className: "problem", role: "alert" }, error.message));
    }
  }
}

export class Patch {
  static id = "patch";
  static title = "Patching";
  static lead = "Two texts of as many tokens that lead to different answers. The second is read with one vector of the first put in its place: how much of the first one’s answer comes back? 1 is all of it. It shows that the vector is enough in this pair, not that nothing else would do.";
  static refuses = streams;

  constructor(app, body) {
    this.app = app;
    this.other = h("textarea", { rows: 2, dir: "auto", name: "other", value: app.state.more.instead ?? app.state.text, spellcheck: false });
    this.area = h("div", {});
    body.append(h("form", { className: "ask", onsubmit: (event) => { event.preventDefault(); this.load(); } },
      h("label", { className: "text" }, "The second text: the one above with a word changed for another of as many tokens", this.other), h("div", { className: "more" }, h("button", { type: "submit", className: "main" }, "Compare them"))), this.area);
    if (app.state.more.instead) this.load();
  }

  async load() {
    const other = this.other.value;
    this.app.keep({ instead: other });
    if (other === this.app.state.text) {
      this.area.replaceChildren(h("p", { role: "status" }, "Both texts are the same: change a word of the second, so that its answer is another one."));
      return;
    }
    this.area.replaceChildren(h("p", { role: "status" }, "Reading it once for every vector …"));
    try {
      const record = await this.app.ask("patching", { other });
      this.area.replaceChildren(
        h("p", {}, "The first text decides for ", token(record.chosen), ", the second for ", token(record.instead), "."),
        ...record.stacks.map((one) => h("section", { className: "step" }, h("h3", {}, one.layers[0].split(".")[0]), grid("What comes back", one.layers, one.tokens.map((text, at) => (text === one.other[at] ? text : h("span", {}, token(text), " / ", token(one.other[at])))), one.recovered, { largest: 1, head: "vector before" }))));
    } catch (error) {
      this.area.replaceChildren(h("p", { className: "problem", role: "alert" }, error.message));
    }
  }
}
