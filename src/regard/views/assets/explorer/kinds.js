// Layers and measures in the words of people who meet them for the first time.

export const NO_ATTENTION = "This model has no attention: what it reads becomes one vector, step by step, so there is nothing to look at here. Its answer, its decoding and its tokens can still be explored.";

// Why what a model decides cannot be asked for, if that is so.
export function decides(app) {
  if (!app.reading.layers.length) return NO_ATTENTION;
  return app.model.decides ? null : "This model gives vectors and decides nothing: there is no answer whose probability could change. Take a model that writes, labels or fills.";
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

export const CHARACTERS = ["mixed", "previous token", "next token", "same word", "induction", "sink"];
