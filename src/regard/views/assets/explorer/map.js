// The heat map of one head: rows look, columns are looked at. The server sends what fits the screen and no more; the
// weight under the pointer comes from its exact row.

import { prepared } from "../colours.js";
import { DIFFUSE_BELOW, LINEAR_UP_TO, label } from "../weights.js";
import { h, token } from "./dom.js";
import { unpack } from "./source.js";

const LEFT = 96, TOP = 84, RIGHT = 52, // room for names, the last of which lean out
  TALLEST = 620, NAMED = 13;

export class HeatMap {
  constructor(view, area) {
    this.view = view;
    this.canvas = h("canvas", { tabIndex: 0, className: "heat", role: "application", "aria-roledescription": "heat map",
      "aria-label": "Heat map. Arrow keys go from weight to weight, plus and minus zoom, 0 shows all, Enter chooses the row." });
    this.note = h("p", { className: "quiet" });
    const button = (text, name, act) => h("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
    area.replaceChildren(h("div", { className: "zoom" }, button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)), button("All", "The whole map", () => this.whole())), this.canvas, this.note);
    this.cell = null;
    this.listen();
    this.whole();
  }

  get counts() {
    const { row, column } = this.view.units;
    return [row.count, column.count];
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerdown", (event) => {
      this.dragged = { x: event.clientX, y: event.clientY, window: this.window, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => {
      const { moved } = this.dragged ?? {};
      this.dragged = null;
      if (!moved && this.cell) this.view.look(this.cell[0]);
    });
    canvas.addEventListener("dblclick", () => this.zoom(0.5));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  whole() {
    const [rows, columns] = this.counts;
    this.fetch([0, rows, 0, columns]);
  }

  // Around the cell that is pointed at, or the middle.
  zoom(factor) {
    const [rows, columns] = this.counts, [top, bottom, left, right] = this.window;
    const [row, column] = this.cell ?? [(top + bottom) / 2, (left + right) / 2];
    const side = (from, to, at, count) => {
      const size = Math.min(Math.max(Math.round((to - from) * factor), Math.min(6, count)), count);
      const begin = Math.round(at - (at - from) * (size / (to - from)));
      const first = Math.min(Math.max(begin, 0), count - size);
      return [first, first + size];
    };
    this.fetch([...side(top, bottom, row, rows), ...side(left, right, column, columns)]);
  }

  shift(rows, columns) {
    const [all, across] = this.counts, [top, bottom, left, right] = this.window;
    const down = Math.min(Math.max(rows, -top), all - bottom), along = Math.min(Math.max(columns, -left), across - right);
    if (down || along) this.fetch([top + down, bottom + down, left + along, right + along]);
  }

  async fetch(window) {
    this.window = window;
    this.draw();
    const [top, bottom, left, right] = window, { layer, head, app } = this.view;
    try {
      const record = await app.ask("window", { layer: layer.name, head, rows: [top, bottom], columns: [left, right], words: app.state.words });
      if (this.window !== window) return;
      this.picture = { window, record, cells: unpack(record.cells) };
      this.draw();
    } catch (error) {
      app.complain(error);
    }
  }

  get size() {
    const [top, bottom, left, right] = this.window;
    const width = Math.max(this.canvas.clientWidth - LEFT - RIGHT, 120);
    const cell = Math.min(width / (right - left), TALLEST / (bottom - top), 44);
    return { wide: cell * (right - left), tall: cell * (bottom - top), cell };
  }

  draw() {
    const { wide, tall, cell } = this.size, { colours } = this.view.app;
    const pen = prepared(this.canvas, this.canvas.clientWidth, tall + TOP + 4);
    pen.font = "12px " + colours.font;
    if (this.picture) this.paint(pen);
    pen.strokeStyle = colours.line;
    pen.strokeRect(LEFT + 0.5, TOP + 0.5, wide, tall);
    this.labels(pen, cell);
    if (this.cell) this.mark(pen, cell);
    const { record } = this.picture ?? {};
    const some = record && record.rows_read < record.rows ? ` Of ${record.rows.toLocaleString("en")} rows ${record.rows_read.toLocaleString("en")} were computed for this picture.` : "";
    const pooled = record && (record.cells.shape[0] < this.picture.window[1] - this.picture.window[0] || record.cells.shape[1] < this.picture.window[3] - this.picture.window[2]);
    this.note.textContent = record ? `Largest: ${record.largest.toFixed(3)}.${this.view.units.column.count > LINEAR_UP_TO ? " Square-root scale." : ""}${pooled ? " Each cell shows the largest weight under it; zoom in for single weights." : ""}${some}` : "Computing …";
  }

  paint(pen) {
    const { cells: { shape: [rows, columns], data }, window } = this.picture;
    const picture = new ImageData(columns, rows), pixels = new Uint32Array(picture.data.buffer);
    const { colours } = this.view.app, { largest } = this.picture.record;
    const end = largest > 0 && largest < DIFFUSE_BELOW ? largest : 1, linear = this.view.units.column.count <= LINEAR_UP_TO;
    const shades = Array.from({ length: 256 }, (_, shade) => {
      const share = ((shade / 255) ** 2 * largest) / end; // as it was sent: the square root of the share of the largest
      return colours.packed[colours.at(linear ? share : Math.sqrt(share))];
    });
    for (let at = 0; at < pixels.length; at++) pixels[at] = shades[data[at]];
    const small = h("canvas", { width: columns, height: rows });
    small.getContext("2d").putImageData(picture, 0, 0);
    const { cell } = this.size;
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP, this.size.wide, this.size.tall);
    pen.clip();
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, LEFT + (window[2] - this.window[2]) * cell, TOP + (window[0] - this.window[0]) * cell, (window[3] - window[2]) * cell, (window[1] - window[0]) * cell);
    pen.restore();
  }

  labels(pen, cell) {
    const { row, column } = this.view.units, { colours } = this.view.app;
    const every = Math.max(1, Math.ceil(NAMED / cell)), [top, bottom, left, right] = this.window;
    pen.fillStyle = colours.text;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (let at = Math.ceil(top / every) * every; at < bottom; at += every) pen.fillText(cut(pen, row.texts[at], every > 1 ? at : null), LEFT - 7, TOP + (at - top + 0.5) * cell);
    pen.textAlign = "left";
    for (let at = Math.ceil(left / every) * every; at < right; at += every) {
      pen.save();
      pen.translate(LEFT + (at - left + 0.5) * cell, TOP - 7);
      pen.rotate(-Math.PI / 3.2);
      pen.fillText(cut(pen, column.texts[at], every > 1 ? at : null), 0, 0);
      pen.restore();
    }
  }

  mark(pen, cell) {
    const [top, bottom, left, right] = this.window, [row, column] = this.cell;
    if (row < top || row >= bottom || column < left || column >= right) return;
    pen.strokeStyle = this.view.app.colours.mark;
    pen.lineWidth = 2;
    pen.strokeRect(LEFT + (column - left) * cell - 1, TOP + (row - top) * cell - 1, Math.max(cell, 3) + 2, Math.max(cell, 3) + 2);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect(), { cell } = this.size, [top, bottom, left, right] = this.window;
    const row = Math.floor((event.clientY - box.top - TOP) / cell) + top, column = Math.floor((event.clientX - box.left - LEFT) / cell) + left;
    return row >= top && row < bottom && column >= left && column < right ? [row, column] : null;
  }

  move(event) {
    if (this.dragged) {
      const { cell } = this.size, { x, y } = this.dragged;
      const down = -Math.round((event.clientY - y) / cell), along = -Math.round((event.clientX - x) / cell);
      if (down || along) {
        Object.assign(this.dragged, { x: event.clientX, y: event.clientY, moved: true });
        this.shift(down, along);
      }
      return;
    }
    this.go(this.at(event));
  }

  key(event) {
    const [rows, columns] = this.counts, far = event.shiftKey ? 10 : 1;
    const steps = { ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -far], ArrowRight: [0, far] };
    if (event.key in steps) {
      const [row, column] = this.cell ?? [this.window[0], this.window[2]];
      const next = this.cell ? [row + steps[event.key][0], column + steps[event.key][1]] : [row, column];
      this.go([Math.min(Math.max(next[0], 0), rows - 1), Math.min(Math.max(next[1], 0), columns - 1)]);
      const [top, bottom, left, right] = this.window;
      const out = (at, from, to) => (at < from ? at - from : at >= to ? at - to + 1 : 0);
      this.shift(out(this.cell[0], top, bottom), out(this.cell[1], left, right));
    } else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") this.whole();
    else if (event.key === "Enter" && this.cell) this.view.look(this.cell[0]);
    else return;
    event.preventDefault();
  }

  // Point at a weight and say what it is.
  async go(cell) {
    if (String(cell) === String(this.cell)) return;
    this.cell = cell;
    this.draw();
    if (!cell) return;
    const { view } = this, { units } = view;
    clearTimeout(this.soon);
    this.soon = setTimeout(async () => {
      const weights = await view.weights(cell[0]).catch(() => null);
      if (this.cell !== cell || !weights) return;
      view.readout.replaceChildren(token(units.row.texts[cell[0]]), " → ", token(units.column.texts[cell[1]]), `: ${weights[cell[1]].toFixed(4).replace("-", "−")}`);
    }, 40);
  }

  close() {
    clearTimeout(this.soon);
  }
}

function cut(pen, text, place) {
  const shown = label(text), room = place === null ? 12 : 8;
  const characters = Array.from(shown);
  return (place === null ? "" : place + " ") + (characters.length > room ? characters.slice(0, room - 1).join("") + "…" : shown);
}
