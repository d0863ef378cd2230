// One word in several sentences: the same vector at first, moved apart layer by layer, and by which words.

import { fixed, h, percent, svg, token } from "./dom.js";
import { unitsOf } from "../weights.js";
import { NO_STREAM } from "./kinds.js";

const SENTENCES = "I sat by the river bank and watched the water.\nI took the money from my bank account.\nHe left the roses by the bank.";
const BESIDE = "bank: He sat by the river bank and watched the water.\nbank: She took money from my bank account.";
const PRONOUNS = ["it", "their", "they", "he", "she", "him", "her", "its", "them", "his"];
const TALL = 300, LEFT = 66, RIGHT = 96, BELOW = 62, LISTED = 12;

export class Meaning {
  static id = "meaning";
  static title = "Meaning";
  static lead = "The same word begins as the same vector in every sentence. Layer by layer the words around it move it; here you see how far apart it ends, and what moved it.";

  constructor(app, body) {
    this.app = app;
    const kept = app.state.more;
    this.sentences = h("textarea", { rows: 4, dir: "auto", name: "sentences", value: kept.sentences ?? SENTENCES, spellcheck: false });
    this.word = h("input", { type: "text", name: "word", value: kept.word ?? "bank", autocomplete: "off" });
    this.beside = h("textarea", { rows: 2, dir: "auto", name: "beside", value: kept.beside ?? (kept.sentences === undefined && kept.word === undefined ? BESIDE : ""), spellcheck: false });
    this.area = h("div", {});
    body.append(app.model.streams ? h("form", { className: "ask", onsubmit: (event) => { event.preventDefault(); this.follow(); } },
      h("label", { className: "text" }, "Sentences, one a line", this.sentences),
      h("label", { className: "text" }, "How near it comes to words in sentences that leave no doubt (optional; two or more, “orange: She ate an orange.” a line)", this.beside),
      h("div", { className: "more" }, h("label", { className: "short" }, "A word of all of them", this.word), h("button", { type: "submit", className: "main" }, "Follow it"))) : h("p", {}, NO_STREAM), this.area);
    if (app.reading.layers.some((one) => one.kind !== "cross")) body.append(this.pronoun());
    if (!app.model.streams) return;
    if (app.model.free || kept.word !== undefined) this.follow();
    else this.area.append(h("p", { className: "quiet" }, "This model was trained on texts of its own kind: give sentences that it knows, with a word that all of them have."));
  }

  async follow() {
    this.app.problem.hidden = true;
    const sentences = this.sentences.value.split("\n").map((one) => one.trim()).filter(Boolean), word = this.word.value;
    const own = this.sentences.value === SENTENCES && word === "bank" && this.beside.value === BESIDE;
    this.app.keep(own ? { sentences: undefined, word: undefined, beside: undefined } : { sentences: this.sentences.value, word, beside: this.beside.value || undefined });
    const beside = this.beside.value.split("\n").map((one) => one.trim()).filter(Boolean).map((one) => {
      const [, name, sentence] = /^([^:]+):\s*(.+)$/.exec(one) ?? ["", word, one];
      return { word: name.trim(), sentence };
    });
    this.area.replaceChildren(h("p", { role: "status" }, "Reading …"));
    try {
      this.draw(await this.app.ask("meaning", { sentences, word, ...(beside.length ? { beside } : {}) }));
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
      curves(record, this.area.clientWidth),
      this.cosines(record),
      ...(record.near ? this.nearness(record) : []),
      h("h3", { className: "apart" }, "What moved it"),
      h("p", { className: "quiet" }, "Of each layer’s change of the vector, the share that attention brought from each word; brown held it back. The rest is the layer’s feed-forward network and normalisation."),
      ...record.sentences.map((one, at) => this.movers(record, one, at)));
  }

  // To which of several senses each sentence's word is nearer, at the beginning and at the end.
  nearness({ near, senses, sentences, layers }) {
    const last = layers.length - 1, middle = Math.floor(last / 2), at = [...new Set([0, middle, last])];
    const rows = sentences.slice(0, near[0].length).map((one, number) => {
      const ends = near[last][number], best = ends.indexOf(Math.max(...ends)), next = Math.max(...ends.filter((_, place) => place !== best));
      return h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, one.sentence)), h("td", { className: "word" }, token(senses[best].word), ` (${best + 1}), by ${fixed(ends[best] - next)}`),
        ...at.flatMap((layer) => senses.map((_, sense) => h("td", {}, fixed(near[layer][number][sense])))));
    });
    return [
      h("h3", { className: "apart" }, "To which of these it is nearer"),
      h("ol", { className: "sentences" }, ...senses.map((one) => h("li", {}, token(one.word), " in ", h("bdi", {}, one.sentence)))),
      h("p", { className: "quiet" }, "Any two words in context have a high cosine: look at which is higher, not at how high one is."),
      h("div", { className: "wide near", tabIndex: 0, role: "region", "aria-label": "How near it is to each sense" }, h("table", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "in"), h("th", { scope: "col", className: "word" }, "ends nearer to"), ...at.flatMap((layer) => senses.map((_, sense) => h("th", { scope: "col" }, `to (${sense + 1}) after ${layers[layer]}`))))),
        h("tbody", {}, ...rows))),
    ];
  }

  // Where a word of the text above looks: what a pronoun refers to, if any head finds that.
  pronoun() {
    const { tokens } = this.app.reading, own = this.app.reading.layers.find((one) => one.kind === "self") ?? this.app.reading.layers.find((one) => one.kind !== "cross");
    const words = unitsOf(tokens[own.rows], true).texts.map((one) => one.replace(/[▁\s]/gu, "").toLowerCase());
    const begun = this.app.state.more.looks ?? PRONOUNS.find((one) => words.includes(one)) ?? "";
    const word = h("input", { type: "text", name: "looks", value: begun, autocomplete: "off" }), area = h("div", {});
    const follow = async () => {
      this.app.keep({ looks: word.value || undefined });
      area.replaceChildren(h("p", { role: "status" }, "Looking …"));
      try {
        area.replaceChildren(...this.looked(await this.app.ask("looks", { word: word.value })));
      } catch (error) {
        area.replaceChildren(h("p", { className: "problem", role: "alert" }, error.message));
      }
    };
    if (words.includes(begun.toLowerCase())) follow();
    return h("section", { className: "pronoun" }, h("h3", { className: "apart" }, "What “it” refers to"),
      h("p", { className: "quiet" }, "Where a word of the text at the top of the page looks: the mean of all heads, and the head that looks there most. A weight is what a head reads; it does not show that the model knows whom a word means."),
      h("form", { className: "ask", onsubmit: (event) => { event.preventDefault(); follow(); } }, h("div", { className: "more" }, h("label", { className: "short" }, "A word of that text", word), h("button", { type: "submit" }, "Where it looks"))), area);
  }

  looked({ word, looks_at }) {
    const order = [...looks_at.entries()].filter(([, one]) => !one.itself).sort(([, one], [, other]) => other.mean - one.mean).slice(0, LISTED);
    const row = ([at, one]) => h("tr", {}, h("th", { scope: "row" }, token(one.word.replace(/^[▁\s]+/u, "")), h("span", { className: "place" }, ` ${at}`)), h("td", {}, percent(one.mean)), h("td", {}, percent(one.most)),
      h("td", { className: "word" }, h("button", { type: "button", className: "link", onclick: () => this.app.go({ view: "head", layer: one.layer, head: one.head, row: looks_at.findIndex((each) => each.itself), words: true }) }, `${one.layer}, head ${one.head}`)));
    return [h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": `Where ${word} looks` }, h("table", {},
      h("thead", {}, h("tr", {}, ...[`“${word}” looks at`, "mean of all heads", "most"].map((name) => h("th", { scope: "col" }, name)), h("th", { scope: "col", className: "word" }, "in"))), h("tbody", {}, ...order.map(row))))];
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

function curves(record, room) {
  const WIDE = Math.min(Math.max(room, 320), 820);
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
