// The lines: two columns of tokens and a line for each weight between them, as opaque as the weight is large.
// Each column scrolls by itself and holds only the tokens in sight, so that a long text costs no more than a short one.

const ROW_OF_MANY = 28;
const ROW_OF_FEW = 42;
const OTHER = { row: "column", column: "row" };

class Lines {
  constructor(page, section) {
    this.page = page;
    this.section = section;
    this.titles = { row: element("h2"), column: element("h2") };
    this.canvas = element("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    section.append(this.titles.row, this.titles.column);
    this.listings = { row: this.listing("row", "from"), column: this.listing("column", "to") };
    section.append(this.listings.row.box, this.canvas, this.listings.column.box);
    this.beyond = ["row", "column"].flatMap((side) => [this.badge(side, -1), this.badge(side, 1)]);
    section.append(...this.beyond.map((badge) => badge.button));
  }

  listing(side, className) {
    const box = element("div", "listing " + className);
    const all = element("div", "all");
    box.append(all);
    box.tabIndex = 0;
    box.setAttribute("role", "listbox");
    const place = (event) => event.target.closest(".row")?.dataset.at;
    box.addEventListener("scroll", () => this.draw());
    box.addEventListener("pointermove", (event) => {
      if (place(event) !== undefined) this.page.point(side, Number(place(event)));
    });
    box.addEventListener("pointerleave", () => this.page.point(null));
    box.addEventListener("pointerdown", (event) => {
      if (place(event) !== undefined) this.listings[side].active = Number(place(event));
    });
    box.addEventListener("click", (event) => {
      if (place(event) !== undefined) this.pin(side, Number(place(event)));
    });
    box.addEventListener("focus", () => {
      if (box.matches(":focus-visible")) this.move(side, this.listings[side].active);
    });
    box.addEventListener("blur", () => this.page.point(null));
    box.addEventListener("keydown", (event) => this.key(side, event));
    return { box, all, active: 0 };
  }

  // How much of the current token's attention lies above or below what is in sight; a click goes there.
  badge(side, direction) {
    const button = element("button", "beyond");
    button.type = "button";
    button.hidden = true;
    const badge = { side, direction, button, target: 0 };
    button.addEventListener("click", () => this.scrollTo(side, badge.target));
    return badge;
  }

  key(side, event) {
    const listing = this.listings[side];
    const count = this.page.matrix.units[side].count;
    const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -count, End: count };
    if (event.key in steps) this.move(side, listing.active + steps[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.pin(side, listing.active);
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") this.listings[OTHER[side]].box.focus();
    else return;
    event.preventDefault();
  }

  move(side, at) {
    const listing = this.listings[side];
    listing.active = Math.min(Math.max(at, 0), this.page.matrix.units[side].count - 1);
    this.reveal(side, listing.active);
    this.page.move(side, listing.active);
    this.revealPartner(side, listing.active);
  }

  pin(side, at) {
    this.listings[side].active = at;
    this.page.pin(side, at);
    if (this.page.pinned) this.revealPartner(side, at);
  }

  // Bring the strongest partner into sight, unless some strong one is already.
  revealPartner(side, at) {
    const other = OTHER[side];
    const partners = this.page.matrix.partners(side, at);
    const seen = partners.some(([place, weight]) => weight >= partners[0][1] / 2 && this.inSight(other, place));
    if (partners.length && !seen) this.scrollTo(other, partners[0][0]);
  }

  inSight(side, at) {
    const { box } = this.listings[side];
    return at * this.rowHeight >= box.scrollTop - this.rowHeight / 2 && (at + 1) * this.rowHeight <= box.scrollTop + box.clientHeight + this.rowHeight / 2;
  }

  reveal(side, at) {
    const { box } = this.listings[side];
    box.scrollTop = Math.min(Math.max(box.scrollTop, (at + 1) * this.rowHeight - box.clientHeight), at * this.rowHeight);
  }

  scrollTo(side, at) {
    const { box } = this.listings[side];
    box.scrollTop = at * this.rowHeight - (box.clientHeight - this.rowHeight) / 2;
    this.draw();
  }

  // A new layer, head or size.
  arrange() {
    const { matrix } = this.page;
    const most = Math.max(matrix.units.row.count, matrix.units.column.count);
    const room = Math.max(340, window.innerHeight - 250);
    this.rowHeight = most * ROW_OF_FEW <= room ? ROW_OF_FEW : ROW_OF_MANY;
    this.height = Math.min(most, Math.floor(room / this.rowHeight)) * this.rowHeight;
    this.section.style.setProperty("--row", this.rowHeight + "px");
    this.section.classList.toggle("few", this.rowHeight === ROW_OF_FEW);
    for (const side of ["row", "column"]) {
      const { box, all } = this.listings[side];
      const [title, hint] = this.page.sideNames(side);
      const { count } = matrix.units[side];
      this.titles[side].textContent = hint;
      box.setAttribute("aria-label", title);
      box.style.height = this.height + "px";
      all.style.height = count * this.rowHeight + "px";
      this.listings[side].active = Math.min(this.listings[side].active, count - 1);
      this.listings[side].offset = Math.max(0, (this.height - count * this.rowHeight) / 2);
      all.style.top = this.listings[side].offset + "px";
    }
    const chosen = this.page.pinned;
    if (chosen && !this.inSight(chosen.side, chosen.at)) {
      this.scrollTo(chosen.side, chosen.at);
      this.revealPartner(chosen.side, chosen.at);
    }
  }

  draw() {
    if (this.section.hidden) return;
    const current = this.page.current();
    const partners = current ? new Map(this.page.matrix.partners(current.side, current.at)) : new Map();
    for (const side of ["row", "column"]) this.fill(side, current, partners);
    this.stroke(current, partners);
    for (const badge of this.beyond) this.count(badge, current, partners);
  }

  span(side) {
    const { box } = this.listings[side];
    const first = Math.max(Math.floor(box.scrollTop / this.rowHeight), 0);
    const last = Math.ceil((box.scrollTop + this.height) / this.rowHeight);
    return [first, Math.min(last, this.page.matrix.units[side].count)];
  }

  fill(side, current, partners) {
    const { box, all, active } = this.listings[side];
    const { units } = this.page.matrix;
    const [first, last] = this.span(side);
    while (all.children.length > last - first) all.lastChild.remove();
    while (all.children.length < last - first) all.append(this.emptyRow());
    for (let at = first; at < last; at++) {
      const row = all.children[at - first];
      const own = current?.side === side && current.at === at;
      const weight = current && current.side !== side ? partners.get(at) : undefined;
      row.id = `attention-${side}-${at}`;
      row.dataset.at = at;
      row.style.top = at * this.rowHeight + "px";
      row.firstChild.textContent = units[side].labels[at];
      row.children[1].textContent = units[side].count > LINEAR_UP_TO ? at : "";
      row.lastChild.textContent = weight === undefined ? "" : weight.toFixed(3);
      row.className = "row" + (own ? " current" : "") + (own && this.page.pinned ? " pinned" : "");
      row.classList.toggle("faint", Boolean(current) && !own && weight === undefined);
      row.setAttribute("aria-selected", String(own));
      this.shade(row, weight);
    }
    if (box.matches(":focus")) box.setAttribute("aria-activedescendant", `attention-${side}-${active}`);
  }

  emptyRow() {
    const row = element("div", "row");
    row.setAttribute("role", "option");
    row.append(element("bdi"), element("span", "place"), element("span", "weight"));
    return row;
  }

  shade(row, weight) {
    const { colours, matrix } = this.page;
    const colour = weight === undefined ? -1 : colours.at(matrix.strength(weight));
    row.style.background = colour < 0 ? "" : colours.names[colour];
    row.style.color = colour < 0 ? "" : colours.inks[colour];
    row.children[1].style.color = row.style.color;
    row.firstChild.style.color = row.style.color;
  }

  stroke(current, partners) {
    const { matrix, colours } = this.page;
    const width = this.canvas.clientWidth;
    const pen = prepared(this.canvas, width, this.height);
    const y = (side, at) => this.listings[side].offset + (at + 0.5) * this.rowHeight - this.listings[side].box.scrollTop;
    pen.strokeStyle = colours.accent;
    const line = (row, column, weight) => {
      const strength = matrix.strength(weight);
      if (strength < 0.02) return;
      const from = y("row", row), to = y("column", column);
      pen.globalAlpha = strength;
      pen.lineWidth = 1 + 2 * strength;
      pen.beginPath();
      pen.moveTo(0, from);
      pen.bezierCurveTo(width * 0.45, from, width * 0.55, to, width, to);
      pen.stroke();
    };
    if (current) {
      for (const [at, weight] of partners) {
        if (current.side === "row") line(current.at, at, weight);
        else line(at, current.at, weight);
      }
      return;
    }
    const [first, last] = this.span("row");
    for (let row = first; row < last; row++) {
      for (const [column, weight] of matrix.partners("row", row)) line(row, column, weight);
    }
  }

  count(badge, current, partners) {
    let sum = 0, best = 0;
    if (current && current.side !== badge.side) {
      const [first, last] = this.span(badge.side);
      for (const [at, weight] of partners) {
        if (badge.direction < 0 ? at >= first : at < last) continue;
        sum += weight;
        if (weight > best) [best, badge.target] = [weight, at];
      }
    }
    const { box } = this.listings[badge.side];
    badge.button.hidden = sum < 0.005;
    badge.button.textContent = `${badge.direction < 0 ? "↑" : "↓"} ${sum.toFixed(2)} ${badge.direction < 0 ? "above" : "below"}`;
    badge.button.style.top = box.offsetTop + (badge.direction < 0 ? 2 : this.height - 26) + "px";
    if (badge.side === "row") badge.button.style.left = this.canvas.offsetLeft + 4 + "px";
    else badge.button.style.right = this.section.clientWidth - this.canvas.offsetLeft - this.canvas.clientWidth + 4 + "px";
  }
}
