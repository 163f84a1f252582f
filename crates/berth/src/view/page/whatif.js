// What if: a change, what comes of it in a simulation, and the command that gives the same.

import { byId, h } from "./dom.js";
import { ask } from "./feed.js";
import { bytes, count, cpu } from "./format.js";

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
  ["Pods", ({ summary }) => summary.pods],
  ["Pods with a node", ({ summary }) => summary.placed],
  ["Pods that do not run", ({ pods }) => pods.pending.length],
  ["Nodes ready", ({ summary }) => summary.readyNodes],
  ["Claims bound", ({ summary }) => summary.boundClaims],
];

const table = (head, rows) => h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...head.map((one) => h("th", {}, one)))), h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell)))))));

const change = (before, after, words) => (before === after ? words(after) : `${words(before)} → ${words(after)}`);

// What is free in each zone where that changes.
const room = (zones) => {
  if (zones.length === 0) return [];
  const cells = ({ zone, before, after }) => [zone || "Without a zone", change(before.cpuMilli, after.cpuMilli, cpu), change(before.memoryBytes, after.memoryBytes, bytes), change(before.volumeBytes, after.volumeBytes, bytes)];
  return [h("h4", {}, "Free in zone"), table(["", "CPU", "Memory", "Volumes"], zones.map(cells))];
};

const answer = ({ steps, pending, changes, evicted, scenario, command }) => {
  const [before, after] = steps;
  const { pods, claims } = changes;
  const worse = after.pods.pending.length - before.pods.pending.length;
  const verdict = worse > 0 ? `${count(worse, "more pod")} would not run.` : worse < 0 ? `${count(-worse, "more pod")} would run.` : after.pods.pending.length === 0 ? "Every pod would run." : "The same number of pods would not run.";
  return [
    h("h3", {}, verdict),
    h("p", { class: "sub" }, after.did.join("; ")),
    table(["", "Before", "After"], ROWS.map(([name, of]) => [name, String(of(before)), String(of(after))])),
    ...room(changes.zones),
    ...list("Pods that move", pods.moved.map((one) => `${one.pod} from ${one.from} to ${one.to}`)),
    ...list("Pods that are placed", pods.placed.map((one) => `${one.pod} on ${one.node}`)),
    ...list("Pods that start running", changes.unblocked),
    ...list("Pods that are preempted", changes.evicted),
    ...list("Pods that are evicted and not created again", evicted.map((one) => `${one.pod}: ${one.message}`)),
    ...list("Pods that do not run", pods.pending.map((one) => `${one.pod}: ${one.message}`)),
    ...list("Pods that are deleted", pods.gone),
    ...list("Claims that are bound", claims.bound.map((one) => `${one.claim} to ${one.volume}`)),
    ...list("Claims without a volume", claims.pending),
    ...list("Claims that are deleted", claims.gone),
    ...list("What would help", [...new Set(pending.flatMap((group) => group.advice))]),
    h("details", {}, h("summary", {}, "On the command line"), h("pre", {}, `cat > what-if.yaml <<'END'\n${scenario}END\n${command}`)),
  ];
};

// What a change does to pods that are on the map.
const podWords = ({ pods, evicted }) => {
  const words = new Map();
  for (const pod of pods.gone) words.set(pod, "would be deleted");
  for (const { pod, node } of pods.pending) words.set(pod, node ? "would not run" : "would be pending");
  for (const { pod, to } of pods.moved) words.set(pod, `would move to ${to}`);
  for (const pod of evicted) words.set(pod, "would be preempted");
  return words;
};

// What a change does to nodes: groups with fixed colours.
const nodeGroups = ({ changes, nodes }, nodeOf) => {
  const { pods, evicted } = changes;
  const left = [...pods.moved.map(({ from }) => from), ...[...pods.gone, ...evicted].map(nodeOf)];
  const taken = [...pods.moved.map(({ to }) => to), ...pods.placed.map(({ node }) => node)];
  return [
    { words: "lost", nodes: [...nodes.lost, ...nodes.gone] },
    { words: "loses pods", nodes: [...new Set(left)] },
    { words: "takes no new pods", nodes: nodes.cordoned },
    { words: "gets pods", nodes: [...new Set(taken)] },
  ];
};

export class WhatIf {
  // `now` gives the model of now: questions are never about the past. The map shows what would change.
  constructor(now, map) {
    Object.assign(this, { now, map });
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
    this.unmark();
    place.replaceChildren(h("p", { class: "sub" }, "Simulating …"));
    try {
      const found = await ask("what-if", { method: "POST", body: JSON.stringify(asked) });
      place.replaceChildren(...answer(found));
      this.mark(found);
    } catch (error) {
      place.replaceChildren(h("p", { class: "warn" }, error.message));
    }
    byId("ask").disabled = false;
  }

  // Shows on the map what would change, if it shows now.
  mark(found) {
    if (this.map.model !== this.now()) return;
    const nodeOf = (pod) => this.now().pods.get(pod)?.node;
    this.map.compare({ title: `What if (${found.steps[1].did.join("; ")}):`, groups: nodeGroups(found, nodeOf), pods: podWords(found.changes), clear: () => this.unmark() });
  }

  unmark() {
    this.map.compare();
  }
}
