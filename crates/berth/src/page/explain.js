// The answer of `berth explain`, node by node.

import { h } from "./dom.js";
import { count } from "./format.js";

const NODES_SHOWN = 12;

const list = (title, items) => (items && items.length > 0 ? [h("h4", {}, title), h("ul", {}, ...items.map((item) => h("li", {}, item)))] : []);

const some = (names) => (names.length > NODES_SHOWN ? `${names.slice(0, NODES_SHOWN).join(", ")} and ${names.length - NODES_SHOWN} more` : names.join(", "));

// The reasons of refusals with their nodes, the most frequent first.
export const reasonsOf = (report) => {
  const found = new Map();
  for (const node of report.nodes) {
    for (const refusal of node.refused) {
      refusal.reasons.forEach((reason, index) => {
        const detail = refusal.details?.[index];
        const words = detail ? `${reason} (${detail})` : reason;
        const key = `${refusal.plugin} ${words}`;
        if (!found.has(key)) found.set(key, { plugin: refusal.plugin, reason: words, nodes: [] });
        found.get(key).nodes.push(node.name);
      });
    }
  }
  return [...found.values()].sort((a, b) => b.nodes.length - a.nodes.length);
};

const scores = (node, weights) => Object.entries(node.scores ?? {}).map(([plugin, score]) => `${plugin} ${score}${(weights[plugin] ?? 1) === 1 ? "" : ` × ${weights[plugin]}`}`).join(", ");

const volumes = (node) => {
  const existing = Object.entries(node.volumes?.static ?? {}).map(([claim, volume]) => `volume ${volume} for ${claim}`);
  const made = (node.volumes?.provision ?? []).map((claim) => `a new volume for ${claim}`);
  return [...existing, ...made].join("; ");
};

const ranking = (report) => {
  const fitting = report.nodes.filter((node) => node.fits).sort((a, b) => (b.total ?? 0) - (a.total ?? 0) || (a.name < b.name ? -1 : 1));
  if (fitting.length === 0) return [];
  const rows = fitting.slice(0, NODES_SHOWN).map((node) =>
    h("tr", {}, h("td", {}, h("button", { class: "link", type: "button", "data-kind": "nodes", "data-name": node.name }, node.name)), h("td", {}, String(node.total ?? "")), h("td", {}, [volumes(node), scores(node, report.weights)].filter(Boolean).join(" · "))),
  );
  const more = fitting.length > NODES_SHOWN ? [h("p", { class: "more" }, `and ${fitting.length - NODES_SHOWN} more that fit`)] : [];
  return [h("h4", {}, `${count(fitting.length, "node")} that ${fitting.length === 1 ? "fits" : "fit"}, the best first`), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Node"), h("th", {}, "Score"), h("th", {}, "Volumes and scores"))), h("tbody", {}, ...rows))), ...more];
};

const refusals = (report) => {
  const reasons = reasonsOf(report);
  const before = report.preFilter.flatMap((refusal) => refusal.reasons.map((reason) => h("li", {}, h("b", {}, "every node"), ": ", reason, " ", h("span", { class: "plugin" }, refusal.plugin))));
  const items = reasons.map(({ plugin, reason, nodes }) => h("li", {}, h("b", {}, count(nodes.length, "node")), ": ", reason, " ", h("span", { class: "plugin" }, plugin), h("div", { class: "names" }, some(nodes))));
  const all = [...before, ...items];
  return all.length > 0 ? [h("h4", {}, report.schedulable ? "Why not elsewhere" : "Why not"), h("ul", { class: "reasons" }, ...all)] : [];
};

// The explanation of a pod, without the message that is shown already.
export const podAnswer = (report, said) => [
  report.waiting?.text ? h("p", { class: "help" }, report.waiting.text) : null,
  ...list("Evidence", report.waiting?.evidence),
  report.message === said ? null : h("p", {}, report.message),
  ...list("What would help", report.advice),
  ...list("Claims", report.claims.map((claim) => `${claim.claim}: ${claim.summary}`)),
  report.preemption ? h("p", {}, `Preemption on ${report.preemption.node} would evict ${report.preemption.victims.map((victim) => victim.pod).join(", ")}.`) : null,
  ...ranking(report),
  ...refusals(report),
  ...list("Could not be read", report.missing),
];

// The explanation of a claim, a volume or a node.
export const objectAnswer = (report) => [...list("berth explain says", report.text), ...list("Pods", report.pods)];
