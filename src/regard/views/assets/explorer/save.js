// What is shown, as a file of one's own; and the link that brings it back.

import { h } from "./dom.js";

const KINDS = { png: ["image/png", "picture"], svg: ["image/svg+xml", "picture to edit"], html: ["text/html", "page to open anywhere"], json: ["application/json", "numbers"] };

export function saving(app) {
  const said = h("span", { role: "status", className: "quiet" });
  const save = async (format) => {
    said.textContent = "Making the file …";
    try {
      const record = await app.ask("export", { layer: app.layer.name, head: format === "html" ? null : app.head, words: app.state.words, format });
      const content = record.json ? JSON.stringify(record.json) : record.text ?? Uint8Array.from(atob(record.base64), (one) => one.charCodeAt(0));
      const link = h("a", { href: URL.createObjectURL(new Blob([content], { type: KINDS[format][0] })), download: `attention.${format}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
      said.textContent = `attention.${format} is saved.`;
    } catch (error) {
      said.textContent = "";
      app.complain(error);
    }
  };
  const buttons = Object.entries(KINDS).map(([format, [, meaning]]) => h("button", { type: "button", title: meaning, "data-save": format, onclick: () => save(format) }, format.toUpperCase()));
  const link = app.linked ? h("button", { type: "button", onclick: async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      said.textContent = "The link is copied: it brings this view back.";
    } catch {
      said.textContent = "The address of this page is the link: it brings this view back.";
    }
  } }, "Copy the link") : "";
  return h("div", { className: "save" }, h("span", { className: "quiet" }, "Save as"), ...buttons, link, said);
}
