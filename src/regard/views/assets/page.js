// The page: which layer, head and view, which token is pointed at or pinned; the views draw, this says what.
//
//   weights.js   the record: tokens, words, the sparse matrix of weights
//   colours.js   the scale of colours, light and dark
//   lines.js     two columns of tokens with lines between them
//   axes.js      the tokens beside the map
//   map.js       the heat map
//   text.js      the text, shaded
//   sheet.js     all heads, small
//
// A token is { side: "row" | "column", at }: rows look, columns are looked at.

const LISTED = 10;
const LONG = 100; // tokens; a longer text opens with the map, which shows all of it
const KEYS = {
  lines: "Keys: ↑ ↓ from token to token, ← → to the other column, Enter pins, Esc lets go.",
  map: "Keys: arrows from weight to weight (with Shift by ten), + and − zoom, 0 shows the whole map, Enter pins, Esc lets go.",
  text: "Keys: arrows from token to token, Enter pins, Esc lets go.",
  sheet: "Each square is one head: rows look, columns are looked at, the stronger the colour, the more. Choose one to see it large.",
};

function shortNumber(number) {
  return String(Number(number.toPrecision(2)));
}

class Page {
  constructor(root, record) {
    this.root = root;
    this.find = (selector) => root.querySelector(selector);
    this.form = this.find(".controls");
    this.layers = record.layers.map((layer) => new Layer(layer, record.tokens));
    this.colours = new Colours(root);
    this.matrices = new Map();
    this.pinned = null;
    this.pointed = null;
    this.views = {
      lines: new Lines(this, this.find("section.lines")),
      map: new HeatMap(this, this.find("section.map")),
      text: new Passages(this, this.find("section.text")),
      sheet: new Sheet(this, this.find("section.sheet")),
    };
    this.layers.forEach((layer, at) => this.form.elements.layer.append(new Option(layer.name, at)));
    this.form.elements.layer.value = record.first;
    this.fillHeads();
    const { row, column } = this.layer.pieces;
    this.form.elements.view.value = Math.max(row.length, column.length) > LONG ? "map" : "lines";
    this.listen();
    this.rebuild();
  }

  listen() {
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("change", () => {
      this.fillHeads();
      this.rebuild();
    });
    this.root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.letGo();
    });
    window.addEventListener("resize", () => this.arrange());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = new Colours(this.root);
      this.arrange();
    });
  }

  get layer() {
    return this.layers[this.form.elements.layer.value];
  }

  get view() {
    return this.views[this.form.elements.view.value];
  }

  fillHeads() {
    const { heads } = this.layer;
    if (this.headCount === heads) return;
    this.headCount = heads;
    const before = this.form.elements.head?.value;
    const choices = heads > 1 ? ["mean", ...Array(heads).keys()].map(String) : ["0"];
    const set = this.find(".heads");
    set.replaceChildren(set.firstElementChild);
    for (const choice of choices) {
      const holder = element("label"), input = element("input");
      Object.assign(input, { type: "radio", name: "head", value: choice });
      input.checked = choice === (choices.includes(before) ? before : choices[0]);
      holder.append(input, element("span", "", choice));
      set.append(holder);
    }
  }

  // A head was chosen among all.
  show(view, layer, head) {
    this.form.elements.view.value = view;
    this.form.elements.layer.value = layer;
    this.fillHeads();
    this.form.querySelector(`[name=head][value="${head}"]`).checked = true;
    this.rebuild();
    this.form.querySelector("[name=view]:checked").focus();
  }

  // A layer, a head, words or a view was chosen.
  rebuild() {
    const head = this.form.querySelector("[name=head]:checked").value;
    const merged = this.form.elements.words.checked;
    const key = [this.form.elements.layer.value, head, merged].join();
    const heads = head === "mean" ? [...Array(this.layer.heads).keys()] : [Number(head)];
    const before = this.matrix;
    if (!this.matrices.has(key)) this.matrices.set(key, new Matrix(this.layer, heads, merged));
    this.matrix = this.matrices.get(key);
    this.shareUnits(merged);
    this.pointed = null;
    this.pinned = before && this.pinned ? this.carried(before, this.pinned) : null;
    if (before !== this.matrix) this.views.map.cell = null;
    for (const [name, view] of Object.entries(this.views)) view.section.hidden = name !== this.form.elements.view.value;
    this.find(".shown").textContent = this.layer.shown;
    for (const part of [".layer", ".heads", ".words", ".stage .readout", "aside"]) this.find(part).hidden = this.view === this.views.sheet;
    this.find(".keys").textContent = KEYS[this.form.elements.view.value];
    this.drawScale();
    this.arrange();
  }

  // Heads of a layer have the same tokens: the same lists, so that a view knows that nothing of them changed.
  shareUnits(merged) {
    this.units ??= new Map();
    for (const side of ["row", "column"]) {
      const key = [this.layer.listNumber[side], merged].join();
      if (!this.units.has(key)) this.units.set(key, this.matrix.units[side]);
      this.matrix.units[side] = this.units.get(key);
    }
  }

  // The same token after a change of layer or of words, if its text is still there.
  carried(before, token) {
    const list = before.layer.listNumber[token.side];
    const side = [token.side, OTHER[token.side]].find((one) => this.layer.listNumber[one] === list);
    if (!side) return null;
    return { side, at: this.matrix.units[side].of[before.units[token.side].first[token.at]] };
  }

  arrange() {
    this.view.arrange();
    this.update();
  }

  update() {
    this.view.draw();
    this.drawReadout();
    this.drawPartners();
  }

  current() {
    return this.pinned ?? this.pointed;
  }

  // The pointer is on a token, or on none.
  point(side, at) {
    if (side === (this.pointed?.side ?? null) && at === this.pointed?.at) return;
    this.pointed = side ? { side, at } : null;
    this.update();
  }

  // The keys went to a token: what is pinned goes with them.
  move(side, at) {
    if (this.pinned) this.pinned = { side, at };
    else this.pointed = { side, at };
    this.update();
  }

  pin(side, at) {
    const same = this.pinned?.side === side && this.pinned.at === at;
    this.pinned = same ? null : { side, at };
    this.pointed = { side, at };
    this.update();
  }

  letGo() {
    this.pinned = this.pointed = this.views.map.cell = null;
    this.update();
  }

  // What a side is called: at length, and in a word.
  sideNames(side) {
    if (this.layer.kind === "cross") return side === "row" ? ["Written (target)", "target"] : ["Read (source)", "source"];
    return side === "row" ? ["Tokens that attend", "from"] : ["Tokens attended to", "to"];
  }

  tokenInWords(side, at) {
    const units = this.matrix.units[side];
    const name = element("bdi", "token", units.labels[at]);
    return units.count > LINEAR_UP_TO ? [name, element("span", "place", " " + at)] : [name];
  }

  pairInWords(row, column) {
    const known = this.matrix.hidden(row, column) ? "masked" : weightInWords(this.matrix.bounds(row, column));
    const weight = element("b", "number", known);
    return [...this.tokenInWords("row", row), " → ", ...this.tokenInWords("column", column), ": ", weight];
  }

  drawReadout() {
    const { pinned, pointed } = this;
    const { cell } = this.views.map;
    const readout = this.find(".readout");
    if (cell && !this.views.map.section.hidden) {
      readout.replaceChildren(...this.pairInWords(cell.row, cell.column));
      return;
    }
    const paired = pinned && pointed && (pinned.side !== pointed.side || (this.layer.oneText && this.view === this.views.text));
    if (paired && !(pinned.side === pointed.side && pinned.at === pointed.at)) {
      const pair = pinned.side === "row" ? [pinned.at, pointed.at] : [pointed.at, pinned.at];
      readout.replaceChildren(...this.pairInWords(...pair));
      return;
    }
    const current = this.current();
    if (!current) {
      const hint = "Point at a token to see its attention alone, click to pin it.";
      readout.replaceChildren(element("span", "hint", hint));
      return;
    }
    const [strongest] = this.matrix.partners(current.side, current.at);
    if (!strongest) readout.replaceChildren(...this.tokenInWords(current.side, current.at), ": no attention");
    else readout.replaceChildren(...this.pairInWords(...(current.side === "row" ? [current.at, strongest[0]] : [strongest[0], current.at])));
  }

  drawPartners() {
    const panel = this.find(".partners");
    const current = this.current();
    panel.hidden = !current;
    if (!current) return;
    const { side, at } = current;
    const partners = this.matrix.partners(side, at);
    const heading = element("h2");
    const verb = side === "row" ? "attends to" : "is attended by";
    heading.append(...this.tokenInWords(side, at), element("span", "verb", verb + (this.pinned ? " (pinned)" : "")));
    const table = element("table"), body = element("tbody");
    for (const [other, weight] of partners.slice(0, LISTED)) body.append(this.partnerRow(OTHER[side], other, weight));
    table.append(body);
    panel.replaceChildren(heading, table, element("p", "rest", this.restInWords(side, partners)));
  }

  partnerRow(side, at, weight) {
    const row = element("tr");
    const name = element("td"), drawn = element("td"), number = element("td", "", weight.toFixed(4));
    const bar = element("div", "bar");
    bar.style.width = 100 * Math.min(weight, 1) + "%";
    name.append(...this.tokenInWords(side, at));
    drawn.append(bar);
    row.append(name, drawn, number);
    row.style.cursor = "pointer";
    row.addEventListener("click", () => this.view.reveal ? this.view.reveal(side, at) : this.view.scrollTo(side, at));
    return row;
  }

  restInWords(side, partners) {
    const sum = partners.reduce((total, [, weight]) => total + weight, 0);
    const listed = partners.slice(0, LISTED).reduce((total, [, weight]) => total + weight, 0);
    const others = partners.length - LISTED;
    const sentences = [];
    if (others > 0) sentences.push(`${others} ${others === 1 ? "other" : "others"}: ${(sum - listed).toFixed(4)} together.`);
    if (side === "column") sentences.push(`In all ${this.matrix.complete ? "" : "at least "}${sum.toFixed(2)} from ${partners.length} of ${this.matrix.units.row.count}.`);
    else if (!partners.length) sentences.push("It may look at nothing.");
    else if (1 - sum > 0.0005) sentences.push(`Not shown: ${(1 - sum).toFixed(4)}.`);
    return sentences.join(" ");
  }

  drawScale() {
    const { linear, end } = this.matrix;
    const notes = linear ? [] : ["square-root scale"];
    if (end < 1) notes.push("the scale ends at the largest, " + shortNumber(end));
    this.find(".scale h2").textContent = "Attention weight" + (notes.length ? ` (${notes.join("; ")})` : "");
    const lines = !this.views.lines.section.hidden;
    const ramp = [0, 1, 2, 3, 4, 5].map((at) => `var(--ramp-${at})`);
    this.find(".ramp").style.background = `linear-gradient(to right, ${lines ? "transparent, var(--accent)" : ramp.join(", ")})`;
    const ticks = (linear ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.05, 0.2, 0.5, 1]).map((tick) => tick * end);
    this.find(".scale ol").replaceChildren(...ticks.map((tick) => {
      const item = element("li", "", shortNumber(tick));
      item.style.left = 100 * this.matrix.strength(tick) + "%";
      return item;
    }));
  }
}

const root = document.getElementById("attention");
new Page(root, JSON.parse(document.getElementById("attention-data").textContent));
