// What if: a change, what comes of it in a simulation, and the command that gives the same.

import { byId, h } from "./dom.js";
import { ask } from "./feed.js";
import { count } from "./format.js";

const SHOWN = 20;
const TARGETS = 200;
const NAMES = { loseZone: "Zone", addNodes: "Like node", scale: "Workload" };

const list = (title, items) => {
  if (items.length === 0) return [];
  const shown = items.slice(0, SHOWN).map((item) => h("li", {}, item));
  if (items.length > SHOWN) shown.push(h("li", { class: "more" }, `and ${items.length - SHOWN} more`));
  return [h("h4", {}, title), h("ul", {}, ...shown)];
};

const ROWS = [
  ["Pods with a node", (summary) => summary.placed],
  ["Pods without one", (summary) => summary.pending],
  ["Nodes ready", (summary) => summary.readyNodes],
  ["Claims bound", (summary) => summary.boundClaims],
];

const answer = ({ steps, pending, scenario, command }) => {
  const [before, after] = steps;
  const pods = after.pods;
  const rows = ROWS.map(([name, of]) => h("tr", {}, h("td", {}, name), h("td", {}, String(of(before.summary))), h("td", {}, String(of(after.summary)))));
  const worse = after.summary.pending - before.summary.pending;
  const verdict = worse > 0 ? `${count(worse, "more pod")} would be left without a node.` : worse < 0 ? `${count(-worse, "pod")} would get a node.` : "As many pods as before have a node.";
  return [
    h("h3", {}, verdict),
    h("p", { class: "sub" }, after.did.join("; ")),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", {}), h("th", {}, "Before"), h("th", {}, "After"))), h("tbody", {}, ...rows)),
    ...list("Moved", pods.moved.map((one) => `${one.pod} from ${one.from} to ${one.to}`)),
    ...list("Placed", pods.placed.map((one) => `${one.pod} on ${one.node}`)),
    ...list("Do not run", pods.pending.map((one) => `${one.pod}: ${one.message}`)),
    ...list("Gone", pods.gone),
    ...list("What would help", [...new Set(pending.flatMap((group) => group.advice))]),
    h("details", {}, h("summary", {}, "On the command line"), h("pre", {}, `cat > what-if.yaml <<'END'\n${scenario}END\n${command}`)),
  ];
};

export class WhatIf {
  // `now` gives the model of now: questions are never about the past.
  constructor(now) {
    this.now = now;
    byId("change").addEventListener("change", () => this.choose());
    byId("target").addEventListener("focus", () => this.suggest());
    byId("target").addEventListener("input", () => this.suggest());
    byId("what-if-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
    this.choose();
  }

  choose() {
    const change = byId("change").value;
    byId("target-label").hidden = change === "apply";
    byId("manifests-label").hidden = change !== "apply";
    byId("number-label").hidden = change !== "scale" && change !== "addNodes";
    byId("target-name").textContent = NAMES[change] ?? "Node";
    byId("number-name").textContent = change === "scale" ? "Replicas" : "How many";
    byId("target").required = change !== "apply";
    byId("target").value = "";
    this.suggest();
  }

  targets() {
    const model = this.now();
    const change = byId("change").value;
    if (change === "loseZone") return [...new Set([...model.nodes.values()].map((row) => row.zone))].filter(Boolean);
    if (change === "scale") return [...model.workloads.keys()];
    return [...model.nodes.keys()];
  }

  suggest() {
    const wanted = byId("target").value;
    const targets = this.targets().filter((name) => name.includes(wanted)).sort().slice(0, TARGETS);
    byId("targets").replaceChildren(...targets.map((name) => h("option", { value: name })));
    const workload = byId("change").value === "scale" && this.now().workloads.get(wanted);
    if (workload) byId("number").value = String(workload.replicas);
  }

  question() {
    const [what, target, number] = [byId("change").value, byId("target").value.trim(), Number(byId("number").value)];
    if (what === "apply") return { what, yaml: byId("manifests").value };
    if (what === "loseZone") return { what, zone: target };
    if (what === "addNodes") return { what, like: target, count: number };
    if (what === "scale") {
      const [kind, namespace, name] = target.split("/");
      return { what, kind, namespace, name: name ?? "", replicas: number };
    }
    return { what, node: target };
  }

  async ask() {
    const place = byId("what-if-answer");
    const asked = this.question();
    byId("ask").disabled = true;
    place.replaceChildren(h("p", { class: "sub" }, "Simulating …"));
    try {
      place.replaceChildren(...answer(await ask("what-if", { method: "POST", body: JSON.stringify(asked) })));
    } catch (error) {
      place.replaceChildren(h("p", { class: "warn" }, error.message));
    }
    byId("ask").disabled = false;
  }
}
