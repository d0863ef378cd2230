// What a link says, made good: a link may be cut off, of another version, or made up by somebody else.

export function number(said, usual, from, to) {
  const found = said === undefined || said === "" ? NaN : Number(said);
  return Number.isFinite(found) ? Math.min(Math.max(found, from), to) : usual;
}

export function whole(said, usual, from, to) {
  const found = number(said, null, from, to);
  return found === null ? usual : Math.trunc(found);
}

export function among(said, known, usual) {
  return known.includes(said) ? said : usual;
}
