// Two columns of tokens and the lines of the one that is looked from. Each column scrolls by itself and holds only the
// tokens in sight, so that a long text costs no more than a short one.

import { prepared } from "../colours.js";
import { h, percent, token } from "./dom.js";

const ROW = 30, TALLEST = 560, SPARE = 4;
const FAINT = 0.004; // weights below this get no line

export class Lines {
  constructor(view, area) {
    this.view = view;
    const [from, to] = view.names();
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.above = h("button", { type: "button", className: "beyond above", hidden: true, onclick: () => this.jump(-1) });
    this.below = h("button", { type: "button", className: "beyond below", hidden: true, onclick: () => this.jump(1) });
    this.from = this.listing("row", from);
    this.to = this.listing("column", to);
    area.replaceChildren(h("div", { className: "lines" }, h("h3", {}, from), h("span", {}), h("h3", {}, to), this.from.box, this.canvas, h("div", { className: "right" }, this.to.box, this.above, this.below)));
    this.from.box.setAttribute("role", "listbox");
    this.from.box.addEventListener("keydown", (event) => this.key(event));
    this.from.box.addEventListener("pointermove", (event) => this.point(event));
    this.from.box.addEventListener("pointerleave", () => this.hovered !== undefined && (this.hovered = undefined, this.view.look(this.view.current)));
    this.from.box.addEventListener("click", (event) => this.pin(event));
    this.draw();
    this.reveal(this.from, view.current);
  }

  listing(side, name) {
    const { count } = this.view.units[side];
    const all = h("div", { className: "all", role: "presentation" });
    all.style.height = count * ROW + "px";
    const box = h("div", { className: "listing " + side, tabIndex: 0, "aria-label": `Tokens: ${name}`, role: "list" }, all);
    box.style.height = Math.min(count * ROW, TALLEST) + "px";
    box.addEventListener("scroll", () => this.draw());
    return { side, box, all };
  }

  place(event) {
    const at = event.target.closest("[data-at]")?.dataset.at;
    return at === undefined ? undefined : Number(at);
  }

  point(event) {
    const at = this.place(event);
    if (at === undefined || at === this.hovered || event.pointerType === "touch") return;
    this.hovered = at;
    this.view.look(at, false);
  }

  pin(event) {
    const at = this.place(event);
    if (at === undefined) return;
    this.hovered = undefined;
    this.view.look(at);
  }

  key(event) {
    const { count } = this.view.units.row;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -count, End: count };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const at = Math.min(Math.max(this.view.current + steps[event.key], 0), count - 1);
    this.view.look(at);
    this.reveal(this.from, at);
  }

  reveal({ box }, at) {
    if (at * ROW < box.scrollTop) box.scrollTop = at * ROW;
    else if ((at + 1) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (at + 1) * ROW - box.clientHeight;
  }

  span({ box, side }) {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - SPARE);
    return [first, Math.min(this.view.units[side].count, Math.ceil((box.scrollTop + (box.clientHeight || TALLEST)) / ROW) + SPARE)];
  }

  draw() {
    const { shown, units } = this.view;
    this.fill(this.from, (at) => {
      const current = at === (shown?.unit ?? this.view.current);
      return h("div", { className: "row" + (current ? " current" : ""), role: "option", id: `from-${at}`, "aria-selected": String(current), "aria-setsize": units.row.count, "aria-posinset": at + 1 }, token(units.row.texts[at]));
    });
    this.from.box.setAttribute("aria-activedescendant", `from-${shown?.unit ?? this.view.current}`);
    this.fill(this.to, (at) => {
      const weight = shown?.weights[at] ?? 0;
      const row = h("div", { className: "row" + (weight ? "" : " none"), role: "listitem" }, token(units.column.texts[at]), h("span", { className: "weight" }, Math.abs(weight) >= 0.0005 ? percent(weight) : ""));
      row.style.setProperty("--share", Math.min(Math.abs(weight), 1));
      return row;
    });
    this.connect();
  }

  fill(listing, make) {
    const [first, last] = this.span(listing);
    const rows = [];
    for (let at = first; at < last; at++) {
      const row = make(at);
      row.dataset.at = at;
      row.style.top = at * ROW + "px";
      rows.push(row);
    }
    listing.all.replaceChildren(...rows);
  }

  connect() {
    const width = this.canvas.clientWidth, height = Math.max(this.from.box.clientHeight, this.to.box.clientHeight);
    if (!width) return;
    const pen = prepared(this.canvas, width, height);
    const { shown, app } = this.view;
    const beyond = [0, 0];
    if (shown) {
      const y = (shown.unit + 0.5) * ROW - this.from.box.scrollTop;
      const top = this.to.box.scrollTop, bottom = top + this.to.box.clientHeight;
      for (let at = 0; at < shown.weights.length; at++) {
        const size = Math.min(Math.abs(shown.weights[at]), 1), middle = (at + 0.5) * ROW;
        if (middle < top || middle > bottom) beyond[middle < top ? 0 : 1] += size;
        else if (size >= FAINT) line(pen, width, y, middle - top, size, shown.weights[at] < 0 ? app.colours.mark : app.colours.accent);
      }
    }
    for (const [button, share, arrow] of [[this.above, beyond[0], "↑"], [this.below, beyond[1], "↓"]]) {
      button.hidden = share < 0.005;
      button.textContent = `${arrow} ${percent(share)}`;
      button.setAttribute("aria-label", `${percent(share)} of it goes to tokens ${arrow === "↑" ? "above" : "below"}: show the strongest`);
    }
  }

  // To the strongest token that is out of sight, above or below.
  jump(direction) {
    const { weights } = this.view.shown, { box } = this.to;
    const outside = (at) => (direction < 0 ? (at + 0.5) * ROW < box.scrollTop : (at + 0.5) * ROW > box.scrollTop + box.clientHeight);
    let best = -1;
    for (let at = 0; at < weights.length; at++) if (outside(at) && (best < 0 || Math.abs(weights[at]) > Math.abs(weights[best]))) best = at;
    if (best >= 0) box.scrollTop = (best + 0.5) * ROW - box.clientHeight / 2;
  }
}

function line(pen, width, from, to, size, colour) {
  pen.beginPath();
  pen.moveTo(0, from);
  pen.bezierCurveTo(width / 2, from, width / 2, to, width, to);
  pen.globalAlpha = 0.12 + 0.88 * size;
  pen.lineWidth = 1 + 6 * size;
  pen.strokeStyle = colour;
  pen.stroke();
}
