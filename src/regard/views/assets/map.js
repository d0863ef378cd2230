// The map: rows look at columns, the darker (on a dark page, the brighter) the more. One canvas, drawn from the weights
// that are kept: where cells are smaller than a pixel, a pixel shows the largest weight in it.

const LARGEST_CELL = 56;
const LARGEST_OF_FEW = 84;

class HeatMap {
  constructor(page, section) {
    this.page = page;
    this.section = section;
    this.canvas = element("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", "Map of the weights; the arrow keys move from weight to weight");
    this.tip = element("div", "tip");
    this.tip.setAttribute("aria-hidden", "true");
    this.tip.hidden = true;
    section.append(this.toolbar(), this.canvas, this.tip);
    this.zoom = 1;
    this.origin = { row: 0, column: 0 };
    this.cell = null; // the one under the pointer or the arrow keys
    this.listen();
  }

  toolbar() {
    const bar = element("div", "zoom");
    const button = (text, title, act) => {
      const made = element("button", "", text);
      made.type = "button";
      made.title = title;
      made.setAttribute("aria-label", title);
      made.addEventListener("click", act);
      bar.append(made);
      return made;
    };
    this.range = element("span", "place");
    bar.append(this.range);
    this.out = button("−", "Zoom out", () => this.zoomBy(0.5));
    this.in = button("+", "Zoom in", () => this.zoomBy(2));
    this.whole = button("Whole", "Show the whole map", () => this.zoomBy(0));
    this.bar = bar;
    return bar;
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerleave", () => this.dragging || this.aim(null));
    canvas.addEventListener("pointerdown", (event) => {
      this.dragging = { x: event.offsetX, y: event.offsetY, origin: { ...this.origin }, far: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => {
      const clicked = this.dragging && !this.dragging.far && this.cellAt(event.offsetX, event.offsetY);
      this.dragging = null;
      if (clicked) this.pin(clicked);
    });
    canvas.addEventListener("pointercancel", () => (this.dragging = null));
    canvas.addEventListener("blur", () => this.aim(null));
    canvas.addEventListener("focus", () => {
      if (canvas.matches(":focus-visible")) this.step(0, 0);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("wheel", (event) => {
      if (this.most === 1 || (this.whollyNamed && !event.ctrlKey)) return; // a small map leaves the wheel to the page
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    }, { passive: false });
  }

  hover(event) {
    const drag = this.dragging;
    if (drag && this.zoom > 1) {
      const right = event.offsetX - drag.x, down = event.offsetY - drag.y;
      drag.far ||= Math.hypot(right, down) > 4;
      this.origin = { row: drag.origin.row - down / this.tall, column: drag.origin.column - right / this.wide };
      this.size();
      this.draw();
      return;
    }
    this.aim(this.cellAt(event.offsetX, event.offsetY));
  }

  cellAt(x, y) {
    if (x < this.left || y < this.top) return null;
    const column = Math.floor((x - this.left) / this.wide + this.origin.column);
    const row = Math.floor((y - this.top) / this.tall + this.origin.row);
    const { units } = this.page.matrix;
    return row < units.row.count && column < units.column.count ? { row, column } : null;
  }

  aim(cell) {
    if (cell?.row === this.cell?.row && cell?.column === this.cell?.column) return;
    this.cell = cell;
    this.page.pointed = cell && { side: "row", at: cell.row };
    this.page.update();
  }

  pin(cell) {
    this.cell = cell;
    this.page.pin("row", cell.row);
  }

  key(event) {
    const stride = event.shiftKey ? 10 : 1;
    const { row, column } = this.page.matrix.units;
    const steps = {
      ArrowUp: [-stride, 0], ArrowDown: [stride, 0], ArrowLeft: [0, -stride], ArrowRight: [0, stride],
      PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -column.count], End: [0, column.count],
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) this.step(...steps[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoomBy(2);
    else if (event.key === "-") this.zoomBy(0.5);
    else if (event.key === "0") this.zoomBy(0);
    else if ((event.key === "Enter" || event.key === " ") && this.cell) this.pin(this.cell);
    else return;
    event.preventDefault();
  }

  step(down, right) {
    const { units } = this.page.matrix;
    const start = this.cell ?? { row: this.page.pinned?.side === "row" ? this.page.pinned.at : 0, column: 0 };
    const clamp = (side, by) => Math.min(Math.max(start[side] + by, 0), units[side].count - 1);
    this.cell = { row: clamp("row", down), column: clamp("column", right) };
    this.bringIntoSight(this.cell);
    this.page.move("row", this.cell.row);
    this.page.update();
  }

  bringIntoSight(cell) {
    for (const side of ["row", "column"]) {
      const room = this.visibleCells(side);
      if (cell[side] < this.origin[side]) this.origin[side] = cell[side];
      if (cell[side] + 1 > this.origin[side] + room) this.origin[side] = cell[side] + 1 - room;
    }
    this.size();
  }

  // Show a partner of the current token.
  reveal(side, at) {
    const current = this.page.current();
    this.cell = side === "row" ? { row: at, column: current.at } : { row: current.at, column: at };
    this.bringIntoSight(this.cell);
    this.page.update();
  }

  visibleCells(side) {
    return side === "row" ? this.plotHeight / this.tall : this.plotWidth / this.wide;
  }

  zoomBy(factor, x, y) {
    const focus = this.cell ?? this.page.pinned;
    if (x === undefined) {
      const inside = this.cell && this.zoom * factor > 1;
      x = this.left + (inside ? (this.cell.column + 0.5 - this.origin.column) * this.wide : this.plotWidth / 2);
      y = this.top + (inside ? (this.cell.row + 0.5 - this.origin.row) * this.tall : this.plotHeight / 2);
      if (this.zoom === 1 && focus?.side === "row") y = this.top + (focus.at + 0.5) * this.tall;
    }
    const before = { row: (y - this.top) / this.tall + this.origin.row, column: (x - this.left) / this.wide + this.origin.column };
    this.zoom = Math.min(Math.max(this.zoom * factor, 1), this.most);
    this.size();
    this.origin = { row: before.row - (y - this.top) / this.tall, column: before.column - (x - this.left) / this.wide };
    this.size();
    this.page.update();
  }

  // A new layer, head or size: the room for labels, and the cells when all are in sight.
  arrange() {
    const { units } = this.page.matrix;
    this.width = this.section.clientWidth;
    this.font = "13px " + this.page.colours.font;
    const few = Math.max(units.row.count, units.column.count) <= 16;
    this.largest = few ? LARGEST_OF_FEW : LARGEST_CELL;
    const right = measureAxes(this, this.canvas.getContext("2d"));
    const height = Math.max(window.innerHeight - (few ? 250 : 170), 400);
    this.room = { row: height - this.top, column: this.width - this.left - right };
    const each = { row: this.room.row / units.row.count, column: this.room.column / units.column.count };
    const side = Math.min(this.largest, each.row, each.column);
    const alike = few || Math.max(each.row, each.column) < 5 * Math.min(each.row, each.column);
    this.fit = { row: alike ? side : Math.min(each.row, 16), column: alike ? side : Math.min(each.column, 16) };
    this.most = Math.max(1, LARGEST_CELL / Math.min(this.fit.row, this.fit.column));
    this.whollyNamed = Math.min(this.fit.row, this.fit.column) >= SMALLEST_NAMED;
    this.bar.hidden = this.whollyNamed;
    if (this.cell && (this.cell.row >= units.row.count || this.cell.column >= units.column.count)) this.cell = null;
    this.size();
    if (this.page.pinned && this.zoom > 1) this.bringIntoSight(this.middle());
  }

  // The cell in the middle of what is in sight, in the row or column that is pinned.
  middle() {
    const { side, at } = this.page.pinned;
    const centre = (one) => Math.floor(this.origin[one] + this.visibleCells(one) / 2);
    return { row: centre("row"), column: centre("column"), [side]: at };
  }

  // The cells at this zoom, and the corner kept inside the map.
  size() {
    const { units } = this.page.matrix;
    this.zoom = Math.min(this.zoom, this.most);
    this.tall = Math.min(this.fit.row * this.zoom, this.largest);
    this.wide = Math.min(this.fit.column * this.zoom, this.largest);
    this.plotHeight = Math.min(units.row.count * this.tall, this.room.row);
    this.plotWidth = Math.min(units.column.count * this.wide, this.room.column);
    for (const side of ["row", "column"]) {
      const last = Math.max(units[side].count - this.visibleCells(side), 0);
      this.origin[side] = Math.min(Math.max(this.origin[side], 0), last);
    }
    this.section.classList.toggle("zoomed", this.zoom > 1);
  }

  span(side) {
    const first = Math.floor(this.origin[side] + 1e-6);
    const last = Math.ceil(this.origin[side] + this.visibleCells(side) - 1e-6);
    return [first, Math.min(last, this.page.matrix.units[side].count)];
  }

  draw() {
    if (this.section.hidden) return;
    const { colours } = this.page;
    const pen = prepared(this.canvas, this.width, this.top + this.plotHeight + 4);
    pen.font = this.font;
    pen.fillStyle = colours.names[0];
    pen.fillRect(this.left, this.top, this.plotWidth, this.plotHeight);
    if (Math.min(this.wide, this.tall) < 4) this.drawPixels(pen);
    else this.drawCells(pen);
    if (this.page.matrix.layer.masked) this.drawMasked(pen);
    const marked = { row: this.cell?.row, column: this.cell?.column };
    const { pinned } = this.page;
    if (pinned && marked[pinned.side] === undefined) marked[pinned.side] = pinned.at;
    this.drawCross(pen, marked);
    drawAxes(this, pen, marked);
    this.showState();
  }

  // What no row may look at has the page's own colour.
  drawMasked(pen) {
    const [first, last] = this.span("row");
    const shift = Math.min(this.wide, this.tall) < 4 ? 1 : 0; // a pixel on the diagonal stays whole
    const edge = this.left + this.plotWidth;
    const x = (column) => Math.min(Math.max(this.left + (column - this.origin.column) * this.wide + shift, this.left), edge);
    const y = (row) => Math.min(Math.max(this.top + (row - this.origin.row) * this.tall, this.top), this.top + this.plotHeight);
    pen.fillStyle = this.page.colours.page;
    pen.beginPath();
    pen.moveTo(edge, y(first));
    for (let row = first; row < last; row++) {
      pen.lineTo(x(row + 1), y(row));
      pen.lineTo(x(row + 1), y(row + 1));
    }
    pen.lineTo(edge, y(last));
    pen.fill();
  }

  drawCells(pen) {
    const { matrix, colours } = this.page;
    const [firstRow, lastRow] = this.span("row"), [firstColumn, lastColumn] = this.span("column");
    const gap = Math.min(this.wide, this.tall) >= 10 ? 1 : 0;
    const numbers = Math.min(this.wide, this.tall) >= 36;
    pen.save();
    pen.beginPath();
    pen.rect(this.left, this.top, this.plotWidth, this.plotHeight);
    pen.clip();
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let row = firstRow; row < lastRow; row++) {
      const y = this.top + (row - this.origin.row) * this.tall;
      const { start, other, weight } = matrix.row;
      for (let at = start[row]; at < start[row + 1]; at++) {
        if (other[at] < firstColumn || other[at] >= lastColumn) continue;
        const x = this.left + (other[at] - this.origin.column) * this.wide;
        const colour = colours.at(matrix.strength(weight[at]));
        pen.fillStyle = colours.names[colour];
        pen.fillRect(x, y, this.wide - gap, this.tall - gap);
        if (!numbers || weight[at] < 0.005) continue;
        pen.fillStyle = colours.inks[colour];
        pen.fillText(weight[at].toFixed(2), x + this.wide / 2, y + this.tall / 2 + 1);
      }
    }
    pen.restore();
  }

  // Made anew only when something but the pointer has moved.
  drawPixels(pen) {
    const { matrix, colours } = this.page;
    const ratio = pen.getTransform().a;
    const made = { matrix, colours, ratio, wide: this.wide, tall: this.tall, ...this.origin, width: this.plotWidth, height: this.plotHeight };
    if (!this.made || Object.keys(made).some((key) => made[key] !== this.made[key])) {
      this.made = made;
      this.image = this.pixels(pen, ratio);
    }
    pen.putImageData(this.image, Math.round(this.left * ratio), Math.round(this.top * ratio));
  }

  pixels(pen, ratio) {
    const { matrix, colours } = this.page;
    const width = Math.max(Math.round(this.plotWidth * ratio), 1), height = Math.max(Math.round(this.plotHeight * ratio), 1);
    const strongest = new Uint8Array(width * height);
    const wide = this.wide * ratio, tall = this.tall * ratio;
    const across = Math.max(1, Math.round(wide)), down = Math.max(1, Math.round(tall));
    const [firstRow, lastRow] = this.span("row");
    const { start, other, weight } = matrix.row;
    for (let row = firstRow; row < lastRow; row++) {
      const y = Math.floor((row - this.origin.row) * tall);
      for (let at = start[row]; at < start[row + 1]; at++) {
        const x = Math.floor((other[at] - this.origin.column) * wide);
        const value = colours.at(matrix.strength(weight[at]));
        for (let v = Math.max(y, 0); v < Math.min(y + down, height); v++) {
          for (let u = Math.max(x, 0); u < Math.min(x + across, width); u++) {
            if (strongest[v * width + u] < value) strongest[v * width + u] = value;
          }
        }
      }
    }
    const image = pen.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    for (let at = 0; at < pixels.length; at++) pixels[at] = colours.packed[strongest[at]];
    return image;
  }

  drawCross(pen, marked) {
    pen.strokeStyle = this.page.colours.mark;
    pen.save();
    pen.beginPath();
    pen.rect(this.left - 1, this.top - 1, this.plotWidth + 2, this.plotHeight + 2);
    pen.clip();
    pen.lineWidth = 1;
    for (const side of ["row", "column"]) {
      if (marked[side] === undefined) continue;
      const size = side === "row" ? this.tall : this.wide;
      const from = (side === "row" ? this.top : this.left) + (marked[side] - this.origin[side]) * size;
      pen.globalAlpha = size < 4 ? 0.8 : 0.55;
      for (const place of size < 4 ? [from + size / 2] : [from - 0.5, from + size - 0.5]) {
        pen.beginPath();
        pen.moveTo(side === "row" ? this.left : place, side === "row" ? place : this.top);
        pen.lineTo(side === "row" ? this.left + this.plotWidth : place, side === "row" ? place : this.top + this.plotHeight);
        pen.stroke();
      }
    }
    if (this.cell) {
      pen.globalAlpha = 1;
      pen.lineWidth = 2;
      const grow = Math.max(0, (7 - Math.min(this.wide, this.tall)) / 2);
      pen.strokeRect(
        this.left + (this.cell.column - this.origin.column) * this.wide - 0.5 - grow,
        this.top + (this.cell.row - this.origin.row) * this.tall - 0.5 - grow,
        this.wide + 2 * grow, this.tall + 2 * grow,
      );
    }
    pen.restore();
  }

  // The tip beside the cell, and what the zoom shows.
  showState() {
    const { cell, page } = this;
    const [firstRow, lastRow] = this.span("row"), [firstColumn, lastColumn] = this.span("column");
    this.out.disabled = this.whole.disabled = this.zoom <= 1;
    this.in.disabled = this.zoom >= this.most;
    this.range.textContent = this.zoom > 1
      ? `rows ${firstRow} to ${lastRow - 1}, columns ${firstColumn} to ${lastColumn - 1}`
      : `${lastRow} rows, ${lastColumn} columns`;
    this.tip.hidden = !cell;
    if (!cell) return;
    this.tip.replaceChildren(...page.pairInWords(cell.row, cell.column));
    const x = this.left + (cell.column + 1 - this.origin.column) * this.wide + 12;
    const y = this.canvas.offsetTop + this.top + (cell.row + 1 - this.origin.row) * this.tall + 12;
    const width = this.tip.offsetWidth;
    this.tip.style.left = Math.max(0, x + width > this.width ? x - width - this.wide - 24 : x) + "px";
    this.tip.style.top = y + "px";
  }
}
