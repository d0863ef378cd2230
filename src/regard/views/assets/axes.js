// The map's axes: tokens beside the rows and above the columns; where not all have room, only some, by their number.

const SMALLEST_NAMED = 15; // pixels a label needs
const LONGEST_NAME = 110; // pixels
const NUMBER_ROOM = 34;
const SLANT = Math.SQRT1_2;

// Room for the labels at the left and at the top; returns what slanted ones need at the right.
function measureAxes(map, pen) {
  const { units } = map.page.matrix;
  pen.font = "600 " + map.font;
  const longest = (side) => units[side].labels.reduce((most, text) => Math.max(most, pen.measureText(text).width), 0);
  const numbers = (side) => (units[side].count > LINEAR_UP_TO ? NUMBER_ROOM : 0);
  const across = Math.min(longest("row"), LONGEST_NAME), up = Math.min(longest("column"), LONGEST_NAME);
  map.left = Math.max(across + numbers("row") + 20, 76);
  map.level = up + 8 <= Math.min(map.largest, (map.width - map.left) / units.column.count);
  map.slanted = !map.level && units.column.count <= 16;
  map.top = Math.max(map.level ? 0 : map.slanted ? up * SLANT + 24 : up + numbers("column") + 20, 42);
  return map.slanted ? up * SLANT : 2;
}

function drawAxes(map, pen, marked) {
  const { colours } = map.page;
  for (const side of ["row", "column"]) {
    const size = side === "row" ? map.tall : map.wide;
    const [first, last] = map.span(side);
    const every = labelStep(size);
    const special = marked[side];
    for (let at = Math.ceil(first / every) * every; at < last; at += every) {
      const crowded = special !== undefined && Math.abs(at - special) * size < SMALLEST_NAMED + 3;
      if (at !== special && !crowded) drawLabel(map, pen, side, at, false);
    }
    if (special >= first && special < last) drawLabel(map, pen, side, special, true);
  }
  pen.fillStyle = colours.quiet;
  pen.textAlign = "right";
  pen.textBaseline = "alphabetic";
  pen.font = "12px " + colours.font;
  pen.fillText(map.page.sideNames("column")[1] + " →", map.left - 10, map.top - 26);
  pen.fillText(map.page.sideNames("row")[1] + " ↓", map.left - 10, map.top - 11);
}

// 1, 2, 5, 10, 20 … cells from label to label.
function labelStep(size) {
  const needed = SMALLEST_NAMED / size - 1e-6;
  for (let power = 1; ; power *= 10) {
    for (const step of [1, 2, 5]) if (step * power >= needed) return step * power;
  }
}

function drawLabel(map, pen, side, at, marked) {
  const { colours, matrix } = map.page;
  const [begin, length, size] = side === "row" ? [map.top, map.plotHeight, map.tall] : [map.left, map.plotWidth, map.wide];
  const middle = begin + (at + 0.5 - map.origin[side]) * size;
  if (middle < begin || middle > begin + length) return;
  const numbered = matrix.units[side].count > LINEAR_UP_TO;
  pen.save();
  if (side === "row") pen.translate(map.left - 10, middle + 1);
  else pen.translate(middle, map.top - 10);
  if (side === "column" && !map.level) pen.rotate(map.slanted ? -Math.PI / 4 : -Math.PI / 2);
  pen.textBaseline = "middle";
  pen.textAlign = side === "row" ? "right" : map.level ? "center" : "left";
  pen.direction = "ltr";
  if (numbered) {
    pen.fillStyle = marked ? colours.mark : colours.quiet;
    pen.font = "11px " + colours.font;
    pen.fillText(String(at), 0, 0);
  }
  pen.fillStyle = marked ? colours.mark : colours.text;
  pen.font = (marked ? "600 " : "") + map.font;
  pen.fillText(shortened(pen, matrix.units[side].labels[at]), numbered ? (side === "row" ? -NUMBER_ROOM : NUMBER_ROOM) : 0, 0);
  pen.restore();
}

function shortened(pen, text) {
  const characters = Array.from(text);
  while (characters.length > 1 && pen.measureText(characters.join("")).width > LONGEST_NAME) {
    characters.splice(-2, 2, "…");
  }
  return characters.join("");
}
