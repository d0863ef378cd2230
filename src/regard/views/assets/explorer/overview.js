// All heads of all layers: as small maps, as a scatter by two measures, and as a table.

import { choice, fixed, h, percent, selector, signed, svg } from "./dom.js";
import { CHARACTERS, MEASURES, NO_ATTENTION, REPEATED, grammarMeasures, layerInWords } from "./kinds.js";
import { among } from "./said.js";
import { unpack } from "./source.js";

const SIZE = 84;

export class Overview {
  static id = "overview";
  static title = "All heads";
  static lead = "Each square is one head: its rows are the tokens that look, its columns the tokens they look at, and the stronger the colour, the more. Choose one to see it large.";
  static refuses = (app) => (app.reading.layers.length ? null : NO_ATTENTION);

  constructor(app, body) {
    this.app = app;
    this.area = h("div", {});
    this.known = MEASURES;
    const ways = [["maps", "Maps"], ["scatter", "Scatter"], ["table", "Table"], ...(this.reads ? [["grammar", "Grammar"]] : [])];
    this.how = among(app.state.more.how, ways.map(([way]) => way), "maps");
    body.append(choice("Show", ways, this.how, (how) => this.turn(how)), this.area);
    this.turn(this.how);
  }

  // Whether sentences of a small grammar can be put before the model: it reads English, and attends within a text.
  get reads() {
    return this.app.model?.free && this.app.source.asksAnew && this.app.reading.layers.some((one) => one.kind !== "cross");
  }

  turn(how) {
    this.how = how === "grammar" && !this.reads ? "maps" : how;
    this.app.keep({ how: this.how });
    if (this.how === "maps") this.maps();
    else this.measured(this.how);
  }

  maps() {
    const { layers } = this.app.reading;
    this.captions = new Map();
    this.area.replaceChildren(h("div", { className: "layers" }, ...layers.map((layer) => this.layerOf(layer))));
    this.measures().then((heads) => {
      for (const one of heads) {
        const caption = this.captions.get(`${one.layer}/${one.head}`);
        if (caption) caption.textContent = one.character;
      }
    }).catch(() => {}); // the maps are there without it, and the table says what went wrong
  }

  // With what each head finds of the grammar, once it was asked for.
  async withGrammar() {
    const [heads, grammar] = await Promise.all([this.measures(), this.app.ask("grammar")]);
    const own = new Map(grammar.heads.map((one) => [`${one.layer}/${one.head}`, one]));
    this.known = [...MEASURES, REPEATED, ...grammarMeasures(grammar)];
    this.grammar = grammar;
    return heads.map((one) => {
      const found = own.get(`${one.layer}/${one.head}`);
      const shares = grammar.relations.map(({ name }, at) => ["relation" + at, found?.shares[name] ?? null]);
      return { ...one, repeated: found?.repeated ?? null, ...Object.fromEntries(shares) };
    });
  }

  measures() {
    return this.app.ask("measures").then((record) => {
      this.measuredOn = record.rows_read < record.rows ? `Measured on ${record.rows_read.toLocaleString("en")} of ${record.rows.toLocaleString("en")} rows, evenly spread.` : "";
      return record.heads;
    });
  }

  layerOf(layer) {
    const row = h("div", { className: "heads" });
    const canvases = Array.from({ length: layer.heads }, (_, head) => {
      const canvas = h("canvas", { width: SIZE, height: SIZE, "aria-hidden": "true" });
      const caption = h("span", { className: "character" }, " ");
      this.captions.set(`${layer.name}/${head}`, caption);
      row.append(h("button", { type: "button", className: "thumb", onclick: () => this.open(layer.name, head) },
        canvas, h("span", { className: "name" }, `head ${head}`), caption));
      return canvas;
    });
    this.app.ask("thumbs", { layer: layer.name })
      .then((record) => canvases.forEach((canvas, head) => paint(canvas, unpack(record.cells), head, this.app.colours)))
      .catch((error) => this.app.complain(error));
    return h("section", { className: "layer" }, h("h3", {}, layer.name), h("p", { className: "quiet" }, layerInWords(layer)), row);
  }

  open(layer, head) {
    this.app.go({ view: "head", layer, head });
    this.app.stage.focus();
  }

  async measured(how) {
    const grammar = how === "grammar" || this.grammar || ["x", "y", "colour"].some((axis) => later(this.app.state.more[axis]));
    const waiting = h("p", { role: "status" }, how === "grammar" ? "Reading sentences of a small grammar …" : "Measuring every head …");
    this.area.replaceChildren(waiting);
    try {
      const heads = await (grammar && this.reads ? this.withGrammar() : this.measures());
      if (this.how !== how) return;
      const made = { table: () => [this.table(heads)], scatter: () => this.scatter(heads), grammar: () => this.grammarOf(heads) };
      this.area.replaceChildren(...made[how](), h("p", { className: "quiet" }, how === "grammar" ? "" : this.measuredOn));
    } catch (error) {
      waiting.replaceChildren();
      this.app.complain(error);
    }
  }

  scatter(heads) {
    const axes = this.known.filter(([name]) => heads.some((one) => (one[name] ?? null) !== null));
    const names = axes.map(([name, shown]) => [name, shown]);
    if (this.reads && !this.grammar) names.push([MORE, "grammar …"]);
    const { x = "distance", y = "entropy", colour = "character" } = this.app.state.more;
    const chosen = { x, y, colour };
    for (const axis of ["x", "y"]) if (!axes.some(([name]) => name === chosen[axis])) chosen[axis] = axes[0][0];
    if (!axes.some(([name]) => name === colour)) chosen.colour = "character";
    const again = (key) => async (value) => {
      this.app.keep({ ...chosen, [key]: value === MORE ? "relation0" : value });
      if (value === MORE) await this.measured("scatter");
      else this.area.replaceChildren(...this.scatter(heads));
      this.area.querySelectorAll("select")[["x", "y", "colour"].indexOf(key)]?.focus();
    };
    const meaning = (name) => this.known.find(([one]) => one === name)?.[2];
    return [
      h("div", { className: "controls" },
        selector("Across", names, chosen.x, again("x")), selector("Up", names, chosen.y, again("y")),
        selector("Colour", [["character", "what it does most"], ...names], chosen.colour, again("colour"))),
      drawn(heads, chosen, this),
      legend(heads, chosen.colour),
      ...[...new Set([chosen.x, chosen.y, chosen.colour])].filter(meaning).map((name) => h("p", { className: "quiet" }, h("b", {}, axes.find(([one]) => one === name)[1] + ": "), meaning(name))),
    ];
  }

  table(heads) {
    const columns = this.known.filter(([name]) => heads.some((one) => (one[name] ?? null) !== null));
    const rows = heads.map((one) => h("tr", {},
      h("th", { scope: "row" }, this.named(one)),
      h("td", { className: "word" }, one.character),
      ...columns.map(([name]) => h("td", {}, (one[name] ?? null) === null ? "–" : fixed(one[name], 2)))));
    return h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "Measures of every head" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "head"), h("th", { scope: "col", className: "word" }, "what it does most"),
        ...columns.map(([, shown, meaning]) => h("th", { scope: "col", title: meaning }, shown)))),
      h("tbody", {}, ...rows)));
  }

  named(one) {
    return h("button", { type: "button", className: "link", onclick: () => this.open(one.layer, one.head) }, `${one.layer}, head ${one.head}`);
  }

  // What a fixed offset finds of each relation, the head that finds most, and every head on a strip.
  grammarOf(heads) {
    const { relations, read } = this.grammar;
    const best = relations.map((_, at) => heads.reduce((most, one) => ((one["relation" + at] ?? -1) > (most["relation" + at] ?? -1) ? one : most)));
    const rows = relations.map((one, at) => {
      const share = best[at]["relation" + at];
      return h("tr", {}, h("th", { scope: "row" }, one.name), h("td", {}, String(one.arcs)), h("td", {}, `${signed(one.offset, 0)} words`), h("td", {}, percent(one.share)),
        h("td", { className: "word" }, this.named(best[at])), h("td", {}, h("b", {}, percent(share))), h("td", { className: "word" }, share > one.share ? "more than the offset" : "no more than the offset"));
    });
    const heading = ["relation", "arcs", "best fixed offset", "finds", "best head", "finds", ""].map((name, at) => h("th", { scope: "col", className: at === 4 || at === 6 ? "word" : "" }, name));
    return [
      h("p", {}, `Measured on ${read}, not on the text above: its words are put together so that it is known which belongs to which. An arc is found if the head looks there most of all, the first token left out.`),
      h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "What heads and fixed offsets find of a grammar" }, h("table", {}, h("thead", {}, h("tr", {}, ...heading)), h("tbody", {}, ...rows))),
      h("p", { className: "quiet" }, "A head that looks one word back finds most determiners and knows no grammar: so each share stands beside that of the best fixed offset. The best head of many was chosen on these arcs; on others it finds fewer. Under “Scatter” and “Table” every head has its shares."),
    ];
  }
}

const MORE = "grammar";
const later = (name) => name === REPEATED[0] || name?.startsWith("relation");

// One head's shades on a small canvas.
function paint(canvas, { shape, data }, head, colours) {
  const [, rows, columns] = shape;
  const picture = new ImageData(columns, rows);
  const pixels = new Uint32Array(picture.data.buffer);
  for (let at = 0; at < pixels.length; at++) pixels[at] = colours.packed[data[head * pixels.length + at]];
  Object.assign(canvas, { width: columns, height: rows });
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

const TALL = 380, LEFT = 56, BELOW = 46;

function drawn(heads, { x, y, colour }, view) {
  const WIDE = Math.min(Math.max(view.area.clientWidth, 320), 820), { app, known } = view;
  const points = heads.filter((one) => [x, y, colour].every((name) => (one[name] ?? null) !== null));
  const across = scale(points.map((one) => one[x]), LEFT, WIDE - 16), up = scale(points.map((one) => one[y]), TALL - BELOW, 14);
  const picture = svg("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, class: "scatter", role: "img", "aria-label": `Every head as a point, ${x} across and ${y} up; the table has the numbers` });
  for (const tick of across.ticks) picture.append(
    svg("line", { class: "grid", x1: across.at(tick), x2: across.at(tick), y1: 14, y2: TALL - BELOW }),
    svg("text", { x: across.at(tick), y: TALL - BELOW + 18, "text-anchor": "middle" }, short(tick)));
  for (const tick of up.ticks) picture.append(
    svg("line", { class: "grid", x1: LEFT, x2: WIDE - 16, y1: up.at(tick), y2: up.at(tick) }),
    svg("text", { x: LEFT - 8, y: up.at(tick) + 4, "text-anchor": "end" }, short(tick)));
  const shown = (name) => known.find(([one]) => one === name)[1];
  picture.append(svg("text", { class: "axis", x: (LEFT + WIDE) / 2, y: TALL - 6, "text-anchor": "middle" }, shown(x)),
    svg("text", { class: "axis", x: -(TALL - BELOW) / 2, y: 14, "text-anchor": "middle", transform: "rotate(-90)" }, shown(y)));
  const most = Math.max(...points.map((one) => (colour === "character" ? 1 : one[colour])), 1e-9);
  for (const one of points) {
    const mark = svg("circle", { cx: across.at(one[x]), cy: up.at(one[y]), r: 8, class: colour === "character" ? "point kind-" + CHARACTERS.indexOf(one.character) : "point", onclick: () => view.open(one.layer, one.head) },
      svg("title", {}, `${one.layer}, head ${one.head}: ${one.character}; ${shown(x)} ${fixed(one[x], 2)}, ${shown(y)} ${fixed(one[y], 2)}`));
    if (colour !== "character") mark.style.fill = app.colours.names[app.colours.at(0.12 + 0.88 * (one[colour] / most))];
    picture.append(mark);
  }
  return picture;
}

function legend(heads, colour) {
  if (colour !== "character") return h("p", { className: "quiet" }, "The stronger the colour, the more.");
  const there = CHARACTERS.filter((name) => heads.some((one) => one.character === name));
  return h("ul", { className: "legend" }, ...there.map((name) => h("li", {}, h("i", { className: "dot kind-" + CHARACTERS.indexOf(name) }), name)));
}

function scale(values, from, to) {
  let least = Math.min(0, ...values), most = Math.max(...values, 1e-3);
  const step = niceStep((most - least) / 5);
  most = Math.ceil(most / step - 1e-9) * step;
  const ticks = [];
  for (let tick = least; tick <= most + step / 2; tick += step) ticks.push(tick);
  return { ticks, at: (value) => from + ((value - least) / (most - least)) * (to - from) };
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
}

function short(number) {
  return String(Number(number.toPrecision(3)));
}
