// Colours, read from the style sheet so that light and dark are said once.

export class Colours {
  constructor(root) {
    const style = getComputedStyle(root);
    const read = (name) => style.getPropertyValue("--" + name).trim();
    const stops = [0, 1, 2, 3, 4, 5].map((at) => channels(read("ramp-" + at)));
    this.table = Array.from({ length: 256 }, (_, at) => between(stops, at / 255));
    this.names = this.table.map(([red, green, blue]) => `rgb(${red} ${green} ${blue})`);
    this.packed = Uint32Array.from(this.table, ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0);
    this.inks = this.table.map((colour) => (luminance(colour) > 0.1791 ? "#000" : "#fff"));
    for (const name of ["page", "panel", "text", "quiet", "line", "accent", "mark"]) this[name] = read(name);
    this.font = style.fontFamily;
  }

  at(strength) {
    return Math.round(Math.min(Math.max(strength, 0), 1) * 255);
  }
}

export function channels(hexadecimal) {
  return [1, 3, 5].map((at) => parseInt(hexadecimal.slice(at, at + 2), 16));
}

export function between(stops, part) {
  const place = Math.min(Math.floor(part * (stops.length - 1)), stops.length - 2);
  const rest = part * (stops.length - 1) - place;
  return stops[place].map((value, at) => Math.round(value + (stops[place + 1][at] - value) * rest));
}

// Relative luminance as WCAG 2 defines it; black and white contrast equally at 0.1791.
export function luminance(colour) {
  const [red, green, blue] = colour.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

// A canvas at the screen's own resolution, cleared, to be drawn on in CSS pixels.
export function prepared(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

export function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
