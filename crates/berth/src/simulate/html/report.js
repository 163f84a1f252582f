// Colours the nodes by why they refuse a group of pods, filters tables, and plays a scenario. The page says everything about the end without this.

import { Details } from "./details.js";
import { byId, h } from "./dom.js";
import { Flow } from "./flow.js";
import { span } from "./format.js";
import { Topology } from "./map.js";
import { Timeline } from "./timeline.js";
import { Waiting } from "./waiting.js";

const COLOURS = 5;
const embedded = (id) => (byId(id) ? JSON.parse(byId(id).textContent) : undefined);

// Shows the end again, if a moment of the scenario is shown.
let toEnd = () => {};

const colourRefusals = () => {
  const groups = embedded("refusals") ?? [];
  const nodes = document.querySelectorAll("[data-node]");
  const byNumber = new Map(Array.from(nodes, (node) => [Number(node.dataset.node), node]));
  const legend = byId("refusal-legend");
  const buttons = document.querySelectorAll("button.show");
  const clear = () => {
    for (const node of nodes) for (let i = 0; i < COLOURS; i++) node.classList.remove(`r${i}`);
    legend.hidden = true;
    legend.replaceChildren();
    for (const button of buttons) button.setAttribute("aria-pressed", "false");
  };
  const show = (group) => {
    legend.append(`Refusing ${group.pods[0]}:`);
    // The first reason of a node decides its colour; all of them stand where it is pointed at.
    group.reasons.forEach((reason, index) => {
      const name = `r${Math.min(index, COLOURS - 1)}`;
      let coloured = 0;
      for (const number of group.nodes[index]) {
        const node = byNumber.get(number);
        if (node && !/\br\d\b/.test(node.className)) {
          node.classList.add(name);
          coloured++;
        }
      }
      if (coloured > 0) legend.append(h("span", { class: `swatch ${name}` }), ` ${reason}`);
    });
    legend.hidden = false;
  };
  for (const button of buttons) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") === "true";
      toEnd();
      clear();
      if (pressed) return;
      show(groups[Number(button.dataset.group)]);
      button.setAttribute("aria-pressed", "true");
      byId("topology").scrollIntoView({ block: "nearest" });
    });
  }
  return clear;
};

const filterTables = () => {
  const filter = byId("filter");
  if (!filter) return;
  filter.parentElement.hidden = false;
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const table of document.querySelectorAll("details.table")) {
      if (wanted) table.open = true;
      for (const row of table.querySelectorAll("tbody tr")) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    }
  });
};

// The scenario, moment by moment, on the map and with the timeline of the page of a live cluster.
const playScenario = (recording, clearRefusals) => {
  let shownAt = recording.start;
  let shown;
  const open = (kind, name) => details.open(kind, name);
  const map = new Topology(open);
  const details = new Details(map, { now: () => shownAt });
  const flow = new Flow(open, map);
  const waiting = new Waiting(open);
  const clock = (at) => span(at - recording.start);
  const show = (model, at, tick) => {
    document.body.classList.toggle("past", Boolean(model));
    byId("at-the-end").hidden = Boolean(model);
    byId("at-a-moment").hidden = !model;
    clearRefusals();
    if (!model) {
      details.close();
      return;
    }
    if (shown !== model) {
      flow.clear();
      map.show(model);
    } else map.draw();
    shown = model;
    shownAt = at;
    if (tick) flow.hear(tick.moments);
    flow.draw(model, at);
    waiting.draw(model, at);
    map.drawSums();
    details.draw(model);
  };
  const timeline = new Timeline({ past: async () => recording, show, clock, end: { button: "End", words: "end", standing: "The map shows the end of the scenario." } });
  timeline.begin(recording.ticks.length, recording.ticks, recording.steps);
  byId("timeline").hidden = byId("time").hidden = false;
  toEnd = () => timeline.past && timeline.goLive();
  document.querySelectorAll("button.step").forEach((button, index) => {
    button.hidden = false;
    button.addEventListener("click", () => {
      timeline.goToStep(index);
      byId("topology").scrollIntoView({ block: "start" });
    });
  });
};

const clearRefusals = colourRefusals();
filterTables();
// Escape hides what a node tells.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && document.activeElement instanceof HTMLElement && document.activeElement.matches("[data-node]")) document.activeElement.blur();
});
const recording = embedded("recording");
if (recording) playScenario(recording, clearRefusals);
