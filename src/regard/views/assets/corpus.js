// Shows one head's rows: every token as dark as its weight, the one that looks with a border.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const choice = document.getElementById("head");

function element(name, kind, text) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

function line([text, row, key, strength, token, number, weights]) {
  const item = element("li");
  item.append(element("span", "said", `${strength.toFixed(2)}  ${token} → ${data.tokens[number][key]}  (text ${text})`));
  data.tokens[number].forEach((name, at) => {
    const shown = element("span", "token", name);
    if (weights[at] > 0) shown.style.backgroundColor = `rgba(var(--mark), ${(0.75 * weights[at]) / 1000})`;
    if (at === row && name === token) shown.classList.add("row");
    shown.title = `${name}: ${(weights[at] / 1000).toFixed(3)}`;
    item.append(shown);
    if (!name.includes(" ")) item.append(" ");
  });
  return item;
}

function part(title, rows) {
  const list = element("ol");
  list.append(...rows.map(line));
  return [element("h2", "", title), list];
}

function show() {
  const head = data.heads[Number(choice.value)];
  document.getElementById("about").textContent =
    `Mean strength ${head.mean.toFixed(3)}; deciles end at ${head.bounds.join(", ")}.`;
  const shown = part("Strongest edges, one of a text", head.strongest);
  head.deciles.forEach((rows, at) => {
    if (rows.length) shown.push(...part(`Drawn from the ${at === 0 ? "weakest" : `${at + 1}.`} tenth of its rows`, rows));
  });
  document.getElementById("rows").replaceChildren(...shown);
}

data.heads.forEach((head, at) => {
  const option = element("option", "", head.name);
  option.value = String(at);
  choice.append(option);
});
choice.addEventListener("change", show);
show();
