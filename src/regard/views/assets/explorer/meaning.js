// One word in several sentences: the same vector at first, moved apart layer by layer, and by which words.

import { fixed, h, svg, token } from "./dom.js";

const SENTENCES = "I sat by the river bank and watched the water.\nI took the money from my bank account.\nHe left the roses by the bank.";
const WIDE = 640, TALL = 300, LEFT = 66, RIGHT = 96, BELOW = 62;

export class Meaning {
  static id = "meaning";
  static title = "Meaning";
  static lead = "The same word begins as the same vector in every sentence. Layer by layer the words around it move it; here you see how far apart it ends, and what moved it.";

  constructor(app, body) {
    this.app = app;
    const kept = app.state.more;
    this.sentences = h("textarea", { rows: 4, dir: "auto", name: "sentences", value: kept.sentences ?? SENTENCES, spellcheck: false });
    this.word = h("input", { type: "text", name: "word", value: kept.word ?? "bank", autocomplete: "off" });
    this.area = h("div", {});
    body.append(h("form", { className: "ask", onsubmit: (event) => { event.preventDefault(); this.follow(); } },
      h("label", { className: "text" }, "Sentences, one a line", this.sentences),
      h("div", { className: "more" }, h("label", { className: "short" }, "A word of all of them", this.word), h("button", { type: "submit", className: "main" }, "Follow it"))), this.area);
    if (app.model.free || kept.word !== undefined) this.follow();
    else this.area.append(h("p", { className: "quiet" }, "This model was trained on texts of its own kind: give sentences that it knows, with a word that all of them have."));
  }

  async follow() {
    this.app.problem.hidden = true;
    const sentences = this.sentences.value.split("\n").map((one) => one.trim()).filter(Boolean), word = this.word.value;
    const own = this.sentences.value === SENTENCES && word === "bank";
    this.app.keep(own ? { sentences: undefined, word: undefined } : { sentences: this.sentences.value, word });
    this.area.replaceChildren(h("p", { role: "status" }, "Reading …"));
    try {
      this.draw(await this.app.ask("meaning", { sentences, word }));
    } catch (error) {
      this.area.replaceChildren();
      this.app.complain(error);
    }
  }

  draw(record) {
    const numbered = record.sentences.map((one, at) => h("li", {}, h("bdi", {}, one.sentence)));
    this.area.replaceChildren(
      h("ol", { className: "sentences" }, ...numbered),
      ...record.findings.map((one) => h("p", {}, one)),
      h("h3", { className: "apart" }, "How alike its vectors are, layer by layer"),
      h("p", { className: "quiet" }, "1 is the same direction, 0 none in common (the cosine); a line for each pair of sentences."),
      curves(record),
      this.cosines(record),
      h("h3", { className: "apart" }, "What moved it"),
      h("p", { className: "quiet" }, "Of each layer’s change of the vector, the share that attention brought from each word; brown held it back. The rest is the layer’s feed-forward network and normalisation."),
      ...record.sentences.map((one, at) => this.movers(record, one, at)));
  }

  cosines(record) {
    return h("details", {}, h("summary", {}, "The numbers"), h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "Cosines" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "layer"), ...record.pairs.map((one) => h("th", { scope: "col" }, one.sentences.join("–"))))),
      h("tbody", {}, ...record.layers.map((layer, at) => h("tr", {}, h("th", { scope: "row" }, layer), ...record.pairs.map((one) => h("td", {}, fixed(one.cosines[at])))))))));
  }

  movers(record, one, number) {
    const largest = Math.max(...one.moved.flatMap((layer) => layer.words.map((part, at) => (at === one.itself ? 0 : Math.abs(part) / Math.max(layer.change, 1e-30)))), 0.01);
    const head = h("tr", {}, h("th", { scope: "col" }, "layer"), ...one.words.map((word, at) => h("th", { scope: "col", className: at === one.itself ? "itself" : "" }, token(word))));
    const rows = one.moved.map((layer) => h("tr", {}, h("th", { scope: "row" }, layer.layer), ...layer.words.map((part) => {
      const share = part / Math.max(layer.change, 1e-30);
      const cell = h("td", { className: share < 0 ? "negative" : "positive" }, Math.abs(share) >= 0.005 ? fixed(100 * share, 0) : "");
      cell.style.setProperty("--size", Math.min(Math.abs(share) / largest, 1));
      return cell;
    })));
    return h("section", { className: "moved" }, h("h4", {}, `In sentence ${number + 1}, in %`),
      h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": `What moved it in sentence ${number + 1}` }, h("table", { className: "vectors" }, h("thead", {}, head), h("tbody", {}, ...rows))));
  }
}

function curves(record) {
  const picture = svg("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, class: "scatter", role: "img", "aria-label": "Cosines by layer; the numbers are in the table below" });
  const all = record.pairs.flatMap((one) => one.cosines), least = Math.min(...all, 0.9), low = Math.floor(least * 10) / 10;
  const x = (at) => LEFT + (at / Math.max(record.layers.length - 1, 1)) * (WIDE - LEFT - RIGHT), y = (value) => 12 + ((1 - value) / (1 - low || 1)) * (TALL - BELOW - 12);
  for (let tick = low; tick <= 1.001; tick += low < 0.5 ? 0.2 : 0.1) picture.append(
    svg("line", { class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: y(tick), y2: y(tick) }), svg("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, tick.toFixed(1)));
  const every = Math.ceil(record.layers.length / 13);
  record.layers.forEach((layer, at) => at % every === 0 && picture.append(svg("text", { x: x(at), y: TALL - BELOW + 20, "text-anchor": "end", transform: `rotate(-35 ${x(at)} ${TALL - BELOW + 20})` }, layer)));
  const placed = record.pairs.map((one, at) => ({ at, end: y(one.cosines.at(-1)) })).sort((one, other) => one.end - other.end);
  placed.forEach((one, order) => { if (order && one.end < placed[order - 1].end + 14) one.end = placed[order - 1].end + 14; });
  for (const { at, end } of placed) {
    const one = record.pairs[at], kind = `curve-${at % 5}`;
    picture.append(svg("polyline", { class: "curve " + kind, points: one.cosines.map((value, layer) => `${x(layer)},${y(value)}`).join(" ") }),
      svg("text", { class: "named " + kind, x: WIDE - RIGHT + 8, y: end + 4 }, `${one.sentences.join(" and ")}: ${one.cosines.at(-1).toFixed(2)}`));
  }
  return picture;
}
