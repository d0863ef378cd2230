// All heads of all layers as small maps: each is the largest weight under its cell. Choose one to see it large.

const CELLS = 40; // of a small map, along each side

class Sheet {
  constructor(page, section) {
    Object.assign(this, { page, section });
  }

  arrange() {
    const made = this.page.layers.map((layer, at) => this.layerOf(layer, at));
    this.section.replaceChildren(...made);
  }

  draw() {} // what is pointed at elsewhere changes nothing here

  layerOf(layer, at) {
    const made = element("section", "layer"), heads = element("div", "small");
    for (let head = 0; head < layer.heads; head++) heads.append(this.button(layer, at, head));
    made.append(element("h2", "", layer.name), heads);
    return made;
  }

  button(layer, at, head) {
    const made = element("button", "thumb"), canvas = element("canvas");
    made.type = "button";
    canvas.setAttribute("aria-hidden", "true");
    this.paint(canvas, layer, head);
    made.append(canvas, element("span", "", `head ${head}`));
    made.addEventListener("click", () => this.page.show("map", at, head));
    return made;
  }

  paint(canvas, layer, head) {
    const { index, weight, k } = layer, rows = layer.pieces.row.length, columns = layer.pieces.column.length;
    const tall = Math.min(rows, CELLS), wide = Math.min(columns, CELLS), most = new Uint16Array(tall * wide);
    let largest = 1;
    for (let row = 0; row < rows; row++) {
      const down = Math.floor((row * tall) / rows) * wide, begin = (head * rows + row) * k;
      for (let at = begin; at < begin + k; at++) {
        const place = down + Math.floor((index[at] * wide) / columns);
        if (weight[at] > most[place]) most[place] = weight[at];
        if (weight[at] > largest) largest = weight[at];
      }
    }
    Object.assign(canvas, { width: wide, height: tall });
    const picture = new ImageData(wide, tall), pixels = new Uint32Array(picture.data.buffer), { colours } = this.page;
    for (let at = 0; at < pixels.length; at++) pixels[at] = colours.packed[colours.at(Math.sqrt(most[at] / largest))];
    canvas.getContext("2d").putImageData(picture, 0, 0);
  }
}
