// How the tokenizer cuts the text, and the merges that built each word.

import { SPECIAL, label } from "../weights.js";
import { h, token } from "./dom.js";

export class Tokens {
  static id = "tokens";
  static title = "Tokens";
  static lead = "A model reads tokens, not letters. Frequent words are one token, rare ones several; each has a number, which is all that the model sees.";

  constructor(app, body) {
    body.append(h("p", { role: "status" }, "Cutting …"));
    app.ask("tokens").then((record) => this.draw(app, body, record)).catch((error) => {
      body.replaceChildren();
      app.complain(error);
    });
  }

  draw(app, body, record) {
    const ratio = record.count ? (record.characters / record.count).toFixed(1) : "0";
    const cut = record.tokens.map((one, at) => h("li", { className: `chip shade-${at % 2}` + (SPECIAL.test(one.token) ? " special" : "") }, token(one.token), h("span", { className: "id" }, String(one.id))));
    body.replaceChildren(
      h("p", {}, `${record.characters.toLocaleString("en")} characters became ${record.count.toLocaleString("en")} tokens, ${ratio} characters each; the vocabulary (${record.kind.replace(/_/g, " ")}) has ${record.vocabulary.toLocaleString("en")} entries.`),
      h("ul", { className: "chips", "aria-label": "Tokens and their ids" }, ...cut),
      record.count > record.tokens.length ? h("p", { className: "quiet" }, `The first ${record.tokens.length} are shown.`) : "",
      h("h3", { className: "apart" }, "How each word was built"),
      record.why
        ? h("p", {}, record.why + ".")
        : h("p", { className: "quiet" }, "A word begins as single characters. The merge that was learnt earliest is applied first, and again, until no learnt pair is left."),
      h("div", { className: "built" }, ...(pieced(record) ? pieces(record.tokens) : record.words.map(word))),
      record.more ? h("p", { className: "quiet" }, `and ${record.more} more words`) : "");
  }
}

// WordPiece takes the longest beginning that its vocabulary has, again and again.
function pieced(record) {
  return record.tokens.some((one) => one.token.startsWith("##")) || record.why.startsWith("WordPiece");
}

function pieces(tokens) {
  const words = [];
  for (const { token: text } of tokens) text.startsWith("##") && words.length ? words.at(-1).push(text) : words.push([text]);
  const several = new Map(words.filter((one) => one.length > 1).map((one) => [one.join(), one]));
  if (!several.size) return [h("p", {}, "Every word of this text is in the vocabulary as a whole.")];
  return [...several.values()].map((one) => {
    const bare = one.map((piece) => piece.replace(/^##/, ""));
    return h("section", {}, h("h4", { dir: "auto" }, h("bdi", {}, bare.join(""))), h("ol", {}, ...one.map((piece, at) => h("li", {},
      h("bdi", { className: "symbol new" }, piece), h("span", { className: "quiet" }, " is the longest beginning of “", h("bdi", {}, bare.slice(at).join("")), at ? "” that may stand inside a word" : "” in the vocabulary")))));
  });
}

function word(one) {
  const symbols = (list, fresh) => h("span", {}, ...list.map((symbol) => h("bdi", { className: "symbol" + (symbol === fresh ? " new" : "") }, label(symbol))));
  return h("section", {}, h("h4", { dir: "auto" }, h("bdi", {}, one.word)), h("ol", {},
    h("li", {}, symbols(one.start)),
    ...one.steps.map(({ pair, number, new: fresh, symbols: after }) => h("li", {}, symbols(after, fresh), h("span", { className: "quiet" }, ` merge ${number}: ${pair.map(label).join(" + ")}`)))));
}
