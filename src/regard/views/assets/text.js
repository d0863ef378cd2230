// The text itself, each token shaded by its weight: what the chosen token attends to, or what attends to it.

class Passages {
  constructor(page, section) {
    this.page = page;
    this.section = section;
    this.active = { row: 0, column: 0 };
    this.direction = element("fieldset", "choice");
    this.direction.append(element("legend", "", "Shade what the chosen token"));
    for (const [side, words] of [["row", "attends to"], ["column", "is attended by"]]) {
      const holder = element("label"), input = element("input");
      Object.assign(input, { type: "radio", name: "direction", value: side, checked: side === "row" });
      input.addEventListener("change", () => this.turn(side));
      holder.append(input, element("span", "", words));
      this.direction.append(holder);
    }
    this.body = element("div");
    const form = element("form");
    form.append(this.direction);
    section.append(form, this.body);
    this.side = "row"; // of the chosen token, where both sides are one text
  }

  turn(side) {
    this.side = side;
    const { pinned } = this.page;
    if (pinned) this.page.pinned = { side, at: pinned.at };
    this.page.update();
  }

  arrange() {
    const { matrix, pinned } = this.page;
    if (this.built !== matrix.units.row.texts || this.builtColumns !== matrix.units.column.texts) this.build();
    this.direction.hidden = !matrix.layer.oneText;
    if (pinned) this.side = pinned.side;
    for (const input of this.direction.querySelectorAll("input")) input.checked = input.value === this.side;
    for (const { box } of this.passages) box.style.maxHeight = this.passages.length > 1 ? "45vh" : Math.max(window.innerHeight - 300, 320) + "px";
    const { side, at } = pinned ?? {};
    if (pinned) this.pieces(side)[at].scrollIntoView({ block: "nearest" });
  }

  build() {
    const { matrix } = this.page;
    this.body.replaceChildren();
    const sides = matrix.layer.oneText ? [["row"]] : [["column"], ["row"]];
    this.passages = sides.map(([side]) => this.passage(side));
    this.built = matrix.units.row.texts;
    this.builtColumns = matrix.units.column.texts;
    this.shaded = [];
  }

  passage(side) {
    const { matrix } = this.page;
    const box = element("div", "passage");
    const name = this.page.sideNames(side)[0];
    box.tabIndex = 0;
    box.dir = "auto";
    box.setAttribute("role", "listbox");
    box.setAttribute("aria-label", matrix.layer.oneText ? "The text" : name);
    const pieces = matrix.units[side].texts.map((text, at) => this.piece(side, text, at));
    for (const { before, shown, after } of pieces) box.append(before, shown, after);
    if (!matrix.layer.oneText) this.body.append(element("h2", "", name));
    this.body.append(box);
    const passage = { side, box, pieces: pieces.map(({ shown }) => shown) };
    this.listen(passage);
    return passage;
  }

  // A token as a run of text; the blanks before it stay unshaded, a token of blanks alone shows marks.
  piece(side, text, at) {
    const [blanks] = /^[ \t\n]*/.exec(text);
    const core = text.slice(blanks.length);
    const printed = (character) => (/[ \t\n\u200c\u200d]/.test(character) ? character : visible(character));
    const shown = element("span", "piece", core ? Array.from(core, printed).join("") : label(text));
    shown.dataset.at = at;
    shown.id = `attention-text-${side}-${at}`;
    shown.setAttribute("role", "option");
    if (!core) shown.classList.add("blank");
    if (SPECIAL.test(text)) shown.classList.add("special");
    return { before: core ? blanks : "", shown, after: core ? "" : blanks.replace(/[^\n]/g, "") };
  }

  sideOf(passage) {
    return this.page.matrix.layer.oneText ? this.side : passage.side;
  }

  pieces(side) {
    const found = this.page.matrix.layer.oneText ? this.passages[0] : this.passages.find((one) => one.side === side);
    return found.pieces;
  }

  listen(passage) {
    const { box } = passage;
    const place = (event) => event.target.closest(".piece")?.dataset.at;
    box.addEventListener("pointermove", (event) => {
      if (place(event) === undefined) this.page.point(null);
      else this.page.point(this.sideOf(passage), Number(place(event)));
    });
    box.addEventListener("pointerleave", () => this.page.point(null));
    box.addEventListener("pointerdown", (event) => {
      if (place(event) !== undefined) this.active[passage.side] = Number(place(event));
    });
    box.addEventListener("click", (event) => {
      if (place(event) !== undefined) this.page.pin(this.sideOf(passage), Number(place(event)));
    });
    box.addEventListener("focus", () => {
      if (box.matches(":focus-visible")) this.move(passage, this.active[passage.side]);
    });
    box.addEventListener("blur", () => this.page.point(null));
    box.addEventListener("keydown", (event) => this.key(passage, event));
  }

  key(passage, event) {
    const { pieces } = passage;
    const at = Math.min(this.active[passage.side], pieces.length - 1);
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -pieces.length, End: pieces.length };
    if (event.key in steps) this.move(passage, at + steps[event.key]);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") this.move(passage, this.nextLine(pieces, at, event.key === "ArrowUp" ? -1 : 1));
    else if (event.key === "Enter" || event.key === " ") this.page.pin(this.sideOf(passage), at);
    else return;
    event.preventDefault();
  }

  // The token nearest above or below.
  nextLine(pieces, from, step) {
    const middle = (piece) => piece.offsetLeft + piece.offsetWidth / 2;
    const goal = middle(pieces[from]);
    let at = from + step;
    while (pieces[at] && Math.abs(pieces[at].offsetTop - pieces[from].offsetTop) < 8) at += step;
    if (!pieces[at]) return from;
    let best = at;
    for (const line = pieces[at].offsetTop; pieces[at] && Math.abs(pieces[at].offsetTop - line) < 8; at += step) {
      if (Math.abs(middle(pieces[at]) - goal) < Math.abs(middle(pieces[best]) - goal)) best = at;
    }
    return best;
  }

  move(passage, at) {
    const place = Math.min(Math.max(at, 0), passage.pieces.length - 1);
    this.active[passage.side] = place;
    passage.pieces[place].scrollIntoView({ block: "nearest" });
    passage.box.setAttribute("aria-activedescendant", passage.pieces[place].id);
    this.page.move(this.sideOf(passage), place);
  }

  reveal(side, at) {
    const piece = this.pieces(side)[at];
    piece.scrollIntoView({ block: "center" });
  }

  draw() {
    const { matrix, colours } = this.page;
    for (const piece of this.shaded) {
      piece.classList.remove("shaded", "current", "pinned");
      piece.removeAttribute("style");
      piece.removeAttribute("aria-selected");
    }
    this.shaded = [];
    const current = this.page.current();
    if (!current) return;
    const others = this.pieces(OTHER[current.side]);
    for (const [at, weight] of matrix.partners(current.side, current.at)) {
      const colour = colours.at(matrix.strength(weight));
      others[at].classList.add("shaded");
      others[at].style.background = colours.names[colour];
      others[at].style.color = colours.inks[colour];
      this.shaded.push(others[at]);
    }
    const own = this.pieces(current.side)[current.at];
    own.classList.add("current");
    own.classList.toggle("pinned", Boolean(this.page.pinned));
    own.setAttribute("aria-selected", "true");
    this.shaded.push(own);
  }
}
