// Layers and measures in the words of people who meet them for the first time.

import { percent, signed } from "./dom.js";

export const NO_ATTENTION = "This model has no attention: what it reads becomes one vector, step by step, so there is nothing to look at here. Its answer, its decoding and its tokens can still be explored.";

// Why what a model decides cannot be asked for, if that is so.
export function decides(app) {
  if (!app.reading.layers.length) return NO_ATTENTION;
  return app.model.decides ? null : "This model gives vectors and decides nothing: there is no answer whose probability could change. Take a model that writes, labels or fills.";
}

export const NO_STREAM = "This model has no stream of token vectors that goes from layer to layer (it is recurrent, or its layers are reversible): there is nothing to read or replace between them.";

// Why there is no vector to be read or replaced between layers, if that is so.
export function streams(app) {
  return decides(app) ?? (app.model.streams ? null : NO_STREAM);
}

// Why a layer's weights cannot be held and their slopes asked for.
export function atOnce(app) {
  if (app.layer.mechanism) return `${app.layer.mechanism} does not attend by a softmax over keys, so there are no weights to multiply or differentiate. Its effective weights are under “One head”.`;
  return app.model.recurrent ? "This model attends step by step, not at once, and nothing lies below its attention that attends: the weights themselves are under “One head”, and cutting an edge there tells what it does." : null;
}

export const KINDS = {
  self: "every token looks at all tokens of the text that is read",
  "masked self": "every token looks at itself and at those before it",
  cross: "every token that is written looks at the text that was read",
};

export function layerInWords(layer) {
  return KINDS[layer.kind] + (layer.mechanism ? `; effective weights of ${layer.mechanism}` : "");
}

export function sideNames(layer) {
  return layer.kind === "cross" ? ["written", "read"] : ["looks from", "looks at"];
}

// [name, on an axis, in a sentence]
export const MEASURES = [
  ["sink", "on the first token", "How much of its attention goes to the first token, where heads look that have nothing to say. The measures below leave that out."],
  ["special", "on special tokens", "How much goes to other special tokens, such as the end of the text."],
  ["entropy", "spread (entropy)", "How spread out a row is, in nats: 0 looks at one token, ln n at n tokens alike."],
  ["distance", "distance", "How many tokens away it looks, on average."],
  ["previous", "previous token", "How much goes to the token just before."],
  ["following", "next token", "How much goes to the token just after."],
  ["same", "same word", "How much goes to the same token elsewhere in the text."],
  ["induction", "induction", "How much goes to what came after the same token, earlier: “it went on like this before”."],
];

// How well a head finds the arcs of a small grammar, as measures of a head: known once `grammar` was asked.
export const REPEATED = ["repeated", "induction, random tokens", "How much goes to what came next the first time, on random tokens that come twice: nothing but the repetition can be learnt from there."];

export function grammarMeasures(grammar) {
  return grammar.relations.map((one, at) => ["relation" + at, one.name, `The share of its arcs that the head finds, of ${one.arcs}; a fixed offset of ${signed(one.offset, 0)} words finds ${percent(one.share)}.`]);
}

export const CHARACTERS = ["mixed", "previous token", "next token", "same word", "induction", "sink"];
