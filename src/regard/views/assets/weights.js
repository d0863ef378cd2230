// Reading the record: numbers from base64, tokens and the words they make, one sparse matrix of what is shown.

export const WEIGHT_STEPS = 65535;
export const LINEAR_UP_TO = 32; // with more columns a weight is spread so thin that a linear scale would look empty
export const DIFFUSE_BELOW = 0.5; // where no weight reaches this the scale ends at the largest
export const LONGEST_LABEL = 24;
export const SPECIAL = /^(?:<[^<>\s]+>|\[[A-Z]+\d*\])$/u;
export const BLANK_FIRST = /^[\p{Z}\t\n\v\f\r▁]/u;
export const BLANK_LAST = /[\p{Z}\t\n\v\f\r▁]$/u;
export const MARKS = { " ": "␣", "\u00a0": "⍽", "\u202f": "⍽", "\n": "⏎", "\r": "⏎", "\t": "⇥" };

export function integers(text, bytesEach) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  return bytesEach === 2 ? new Uint16Array(bytes.buffer) : new Uint32Array(bytes.buffer);
}

// A character, or a mark for one that prints nothing.
export function visible(character) {
  if (MARKS[character]) return MARKS[character];
  if (/\p{Zs}/u.test(character)) return "␣";
  if (!/[\p{C}\p{Z}]/u.test(character)) return character;
  const code = character.codePointAt(0);
  const [letter, digits] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8];
  return "\\" + letter + code.toString(16).padStart(digits, "0");
}

// A token as readers can see it; nothing is left empty.
export function label(token) {
  const marked = Array.from(token, visible).join("");
  if (!marked) return "∅";
  const text = /^[\p{Mn}\p{Me}]/u.test(marked) ? "◌" + marked : marked;
  const characters = Array.from(text);
  return characters.length <= LONGEST_LABEL ? text : characters.slice(0, LONGEST_LABEL - 1).join("") + "…";
}

export function beginsWord(before, piece) {
  return SPECIAL.test(piece) || SPECIAL.test(before) || BLANK_FIRST.test(piece) || BLANK_LAST.test(before);
}

// The word that pieces make; the bytes of one character, \xc3 and \xa9, become it again.
export function joined(pieces) {
  const text = pieces.map((piece, at) => (at && piece.startsWith("##") ? piece.slice(2) : piece)).join("");
  return text.replace(/(?:\\x[89a-f][0-9a-f])+/g, (escaped) => {
    const bytes = Uint8Array.from(escaped.slice(2).split("\\x"), (digits) => parseInt(digits, 16));
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      return escaped;
    }
  });
}

// The units of a text: its pieces one by one, or merged into words. `of` says which unit a piece belongs to.
export function unitsOf(pieces, merged) {
  const wordPiece = pieces.some((piece) => piece.startsWith("##") || piece === "[CLS]");
  const begins = (at) => {
    if (!merged || at === 0) return true;
    return wordPiece ? !pieces[at].startsWith("##") : beginsWord(pieces[at - 1], pieces[at]);
  };
  const first = [];
  const of = new Uint32Array(pieces.length);
  for (let at = 0; at < pieces.length; at++) {
    if (begins(at)) first.push(at);
    of[at] = first.length - 1;
  }
  first.push(pieces.length);
  const texts = merged ? first.slice(0, -1).map((from, at) => joined(pieces.slice(from, first[at + 1]))) : pieces;
  return { texts, labels: texts.map(label), first, of, count: texts.length };
}

export class Layer {
  constructor(record, lists) {
    Object.assign(this, { name: record.name, kind: record.kind, heads: record.heads, shown: record.shown, k: record.k });
    this.pieces = { row: lists[record.rows], column: lists[record.columns] };
    this.listNumber = { row: record.rows, column: record.columns };
    this.record = record;
    this.oneText = record.kind !== "cross";
    this.masked = record.kind === "masked self"; // a row sees no column after itself
  }

  // Decoded when first looked at, so that a page of many layers opens at once.
  get index() {
    this.decodedIndex ??= integers(this.record.index, this.pieces.column.length <= 65536 ? 2 : 4);
    return this.decodedIndex;
  }

  get weight() {
    this.decodedWeight ??= integers(this.record.weight, 2);
    return this.decodedWeight;
  }
}

// The weights between units, of one head or the mean of several: only those that are not 0, rows and columns both ways.
export class Matrix {
  constructor(layer, heads, merged) {
    this.layer = layer;
    this.heads = heads;
    this.units = { row: unitsOf(layer.pieces.row, merged), column: unitsOf(layer.pieces.column, merged) };
    this.linear = this.units.column.count <= LINEAR_UP_TO;
    this.collect();
    this.transpose();
    const most = this.row.weight.reduce((one, other) => Math.max(one, other), 0);
    this.end = most > 0 && most < DIFFUSE_BELOW ? most : 1; // of the scale
  }

  // 0 to 1, for a colour or an opacity.
  strength(weight) {
    return this.linear ? weight / this.end : Math.sqrt(weight / this.end);
  }

  collect() {
    const { row, column } = this.units;
    const scratch = new Float64Array(column.count);
    const starts = [0], ends = [], weights = [];
    for (let unit = 0; unit < row.count; unit++) {
      const touched = this.addRow(unit, scratch).sort((one, other) => scratch[other] - scratch[one] || one - other);
      for (const at of touched) {
        ends.push(at);
        weights.push(scratch[at]);
        scratch[at] = 0;
      }
      starts.push(ends.length);
    }
    this.row = { start: starts, other: Uint32Array.from(ends), weight: Float32Array.from(weights) };
  }

  // Add up the weights of one row of units; returns the columns that got any.
  addRow(unit, scratch) {
    const { row, column } = this.units;
    const { index, weight, k, pieces } = this.layer;
    const share = 1 / (WEIGHT_STEPS * this.heads.length * (row.first[unit + 1] - row.first[unit]));
    const touched = [];
    for (const head of this.heads) {
      const begin = (head * pieces.row.length + row.first[unit]) * k;
      const end = (head * pieces.row.length + row.first[unit + 1]) * k;
      for (let at = begin; at < end; at++) {
        if (weight[at] === 0) continue;
        const other = column.of[index[at]];
        if (scratch[other] === 0) touched.push(other);
        scratch[other] += weight[at] * share;
      }
    }
    return touched;
  }

  transpose() {
    const { start, other, weight } = this.row;
    const starts = new Uint32Array(this.units.column.count + 1);
    for (const at of other) starts[at + 1]++;
    for (let at = 0; at < this.units.column.count; at++) starts[at + 1] += starts[at];
    const next = starts.slice();
    this.column = { start: starts, other: new Uint32Array(other.length), weight: new Float32Array(other.length) };
    for (let row = 0; row < this.units.row.count; row++) {
      for (let at = start[row]; at < start[row + 1]; at++) {
        const place = next[other[at]]++;
        this.column.other[place] = row;
        this.column.weight[place] = weight[at];
      }
    }
  }

  // The partners of a token: [other side's token, weight], the strongest first.
  partners(side, at) {
    const { start, other, weight } = this[side];
    const found = [];
    for (let place = start[at]; place < start[at + 1]; place++) found.push([other[place], weight[place]]);
    return side === "row" ? found : found.sort((one, another) => another[1] - one[1] || one[0] - another[0]);
  }

  // Whether a row may not look at a column.
  hidden(row, column) {
    return this.layer.masked && column > row;
  }

  // The least and the most that a weight can be: what is not kept of a row is at most the smallest that is kept, and
  // at most what is missing from 1.
  bounds(row, column) {
    const { index, weight, k, pieces } = this.layer;
    const rows = this.units.row.first, columns = this.units.column.first;
    let least = 0, unseen = 0;
    for (const head of this.heads) {
      for (let piece = rows[row]; piece < rows[row + 1]; piece++) {
        const begin = (head * pieces.row.length + piece) * k;
        let sum = 0, found = 0;
        for (let at = begin; at < begin + k; at++) {
          sum += weight[at];
          if (index[at] < columns[column] || index[at] >= columns[column + 1]) continue;
          found++;
          least += weight[at];
        }
        const seen = this.layer.masked ? Math.min(columns[column + 1], piece + 1) : columns[column + 1];
        const missing = Math.max(seen - columns[column], 0) - found;
        unseen += Math.min(missing * weight[begin + k - 1], Math.max(WEIGHT_STEPS - sum, 0));
      }
    }
    const parts = WEIGHT_STEPS * this.heads.length * (rows[row + 1] - rows[row]);
    return [least / parts, (least + (this.complete ? 0 : unseen)) / parts];
  }

  get complete() {
    return this.layer.k >= this.layer.pieces.column.length;
  }
}

// A weight in words: a number, or what is known of it.
export function weightInWords([least, most]) {
  if (most - least < 0.00005) return least.toFixed(4);
  return least < 0.00005 ? "at most " + most.toFixed(4) : least.toFixed(4) + " to " + most.toFixed(4);
}
