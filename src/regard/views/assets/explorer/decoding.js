// How an answer is written: every step's candidates with sliders over the recorded logits, or the tree of a beam; any
// alternative can be taken, and the model goes on from there.

import { choice, h, percent, token } from "./dom.js";
import { among, number, whole } from "./said.js";

const FRESH = { temperature: 1, top_k: 0, top_p: 1, seed: 0, written: "greedy" };
const MOST_BEAMS = 16, LAST = 2 ** 31 - 1;
const SOON = 120; // milliseconds after the last move of a slider

export class Decoding {
  static id = "decoding";
  static title = "Decoding";
  static lead = "A model writes one token at a time. At every step it gives each token of its vocabulary a probability; here are the likeliest. Choose another one, and it goes on from there.";
  static refuses = (app) => (app.model.writes ? null : `This model writes no text (its task is ${app.model.task.replace(/_/g, " ")}), so there are no steps of decoding.`);

  constructor(app, body) {
    this.app = app;
    const kept = app.state.more;
    this.how = among(kept.search, ["steps", "beam"], "steps");
    this.settings = {
      temperature: number(kept.temperature, FRESH.temperature, 0.1, 2),
      top_k: whole(kept.top_k, FRESH.top_k, 0, 50),
      top_p: number(kept.top_p, FRESH.top_p, 0.05, 1),
      seed: whole(kept.seed, FRESH.seed, 0, LAST),
      written: among(kept.written, ["greedy", "sample"], FRESH.written),
    };
    this.beams = whole(kept.beams, 4, 1, MOST_BEAMS);
    this.forced = (kept.forced ?? "").split(".").filter((one) => /^\d{1,9}$/.test(one)).map(Number);
    this.controls = h("div", {});
    this.area = h("div", {});
    body.append(choice("Search", [["steps", "Step by step"], ["beam", "Beam search"]], this.how, (how) => this.turn(how)), this.controls, this.area);
    this.turn(this.how);
  }

  turn(how) {
    this.how = how;
    this.keep();
    this.controls.replaceChildren(how === "steps" ? this.sliders() : this.beamSize());
    this.update();
  }

  keep() {
    const said = { search: this.how, forced: this.forced.join(".") || undefined, beams: this.beams === 4 ? undefined : this.beams };
    for (const [name, usual] of Object.entries(FRESH)) said[name] = this.settings[name] === usual ? undefined : this.settings[name];
    this.app.keep(said);
  }

  sliders() {
    const slider = (name, text, from, to, step, shown, meaning) => {
      const value = h("output", {}, shown(this.settings[name]));
      const input = h("input", { type: "range", name, min: from, max: to, step, value: this.settings[name], oninput: () => {
        this.settings[name] = Number(input.value);
        value.textContent = shown(this.settings[name]);
        input.setAttribute("aria-valuetext", value.textContent);
        clearTimeout(this.soon);
        this.soon = setTimeout(() => { this.keep(); this.update(); }, SOON);
      } });
      return h("label", { className: "slider" }, h("span", {}, h("b", {}, text), " ", value), input, h("span", { className: "quiet" }, meaning));
    };
    return h("div", {}, h("div", { className: "sliders" },
      slider("temperature", "Temperature", 0.1, 2, 0.05, (number) => number.toFixed(2), "Below 1 the likely become likelier; above 1 all become more alike."),
      slider("top_k", "Top-k", 0, 50, 1, (number) => (number ? String(number) : "off"), "Only the k likeliest tokens may be written."),
      slider("top_p", "Top-p", 0.05, 1, 0.05, (number) => (number === 1 ? "off" : number.toFixed(2)), "Only the likeliest tokens that together have this probability.")),
      choice("Written", [["greedy", "the likeliest, every time"], ["sample", "drawn by these settings"]], this.settings.written, (written) => { this.settings.written = written; this.turn("steps"); this.controls.querySelector(".written input:checked").focus(); }, "written"),
      this.settings.written === "sample" ? h("button", { type: "button", onclick: () => { this.settings.seed += 1; this.keep(); this.update(); } }, "Draw again") : null);
  }

  beamSize() {
    const input = h("input", { type: "number", name: "beams", min: 1, max: MOST_BEAMS, value: this.beams, onchange: () => {
      this.beams = whole(input.value, 1, 1, MOST_BEAMS);
      input.value = this.beams;
      this.keep();
      this.update();
    } });
    return h("label", { className: "slider" }, h("b", {}, "Beams"), input, h("span", { className: "quiet" }, "So many beginnings are kept side by side at every step."));
  }

  get ending() {
    const { new_tokens } = this.app.asked();
    return new_tokens ? { new_tokens: Math.min(new_tokens, 200) } : {};
  }

  async update() {
    const asked = (this.asked = {});
    try {
      if (this.how === "beam") {
        const record = await this.app.ask("beam", { beams: this.beams, forced: this.forced, ...this.ending });
        if (this.asked === asked) this.tree(record);
        return;
      }
      const { temperature, top_k, top_p, seed, written } = this.settings;
      const said = { temperature, written, seed, forced: this.forced, ...this.ending };
      if (top_k) said.top_k = top_k;
      if (top_p < 1) said.top_p = top_p;
      const record = await this.app.ask("path", said);
      if (this.asked === asked) this.steps(record);
    } catch (error) {
      if (this.asked === asked) this.app.complain(error);
    }
  }

  // What stands there already, and the way back.
  begun(record) {
    if (!record.forced?.length) return null;
    return h("p", { className: "begun" }, "It goes on after ", ...record.forced.map((one) => token(one.token)), " ", h("button", { type: "button", onclick: () => this.goOn([]) }, "Back to the beginning"));
  }

  goOn(forced) {
    this.forced = forced;
    this.how = "steps";
    this.keep();
    this.app.show();
    this.app.stage.focus();
  }

  steps(record) {
    const before = record.forced.map((one) => one.id), focus = document.activeElement?.dataset?.place;
    const written = [];
    const listed = record.steps.map((step, at) => {
      const forced = [...before, ...written];
      written.push(step.id);
      return h("li", { className: "choice-step" },
        h("h3", {}, h("span", { className: "place" }, `${before.length + at + 1} `), token(step.token)),
        h("ul", {}, ...step.candidates.map((one) => this.candidate(one, step, [...forced, one.id], `${at}/${one.id}`))),
        h("p", { className: "quiet" }, step.left < record.vocabulary ? `${step.left.toLocaleString("en")} of ${record.vocabulary.toLocaleString("en")} tokens may be written.` : `All ${record.vocabulary.toLocaleString("en")} tokens may be written.`));
    });
    this.area.replaceChildren(
      h("p", { className: "output" }, h("span", { className: "arrow" }, "Written: "), h("bdi", {}, record.output || "nothing")),
      this.begun(record) ?? "",
      h("p", { className: "quiet" }, "Grey outline: by the model alone. Filled: under these settings. Crossed out: may not be written."),
      h("ol", { className: "choice-steps" }, ...listed));
    if (focus) this.area.querySelector(`[data-place="${focus}"]`)?.focus();
  }

  candidate(one, step, forced, place) {
    const bar = h("span", { className: "share", "aria-hidden": "true" }, h("i", {}), h("u", {}));
    bar.style.setProperty("--share", one.share);
    bar.style.setProperty("--model", one.model);
    const chosen = one.id === step.id;
    return h("li", { className: (chosen ? "taken" : "") + (one.share ? "" : " removed") }, h("button", {
      type: "button", "data-place": place, "aria-label": `${one.token}: ${percent(one.share)}${chosen ? ", written" : ""}${one.share ? "" : ", may not be written"}; by the model alone ${percent(one.model)}. Go on from here.`, onclick: () => this.goOn(forced),
    }, token(one.token), bar, h("span", { className: "number" }, percent(one.share))));
  }

  // The beam's tree, as the server draws it; every branch can be gone on from.
  tree(record) {
    const drawn = document.adoptNode(new DOMParser().parseFromString(record.svg, "image/svg+xml").documentElement);
    for (const branch of drawn.querySelectorAll("[data-branch]")) {
      const { branch: number } = branch.dataset;
      const go = () => this.goOn(record.paths[number]);
      branch.setAttribute("role", "button");
      branch.setAttribute("tabindex", "0");
      branch.setAttribute("aria-label", (branch.querySelector("title")?.textContent ?? "") + ". Go on from here.");
      branch.addEventListener("click", go);
      branch.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        go();
      });
    }
    drawn.setAttribute("role", "group");
    this.area.replaceChildren(
      h("div", { className: "story" }, ...record.story.map((one) => h("p", {}, one))),
      h("p", { className: "quiet" }, "Green: the winner. Blue: other answers that ended. Red, dashed: dropped. Choose a token to go on from it, step by step."),
      h("div", { className: "wide tree" }, drawn));
  }

  close() {
    clearTimeout(this.soon);
  }
}
