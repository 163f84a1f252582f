// What is being bound or provisioned: each claim goes from itself to its volume to its node, as it happens.

import { byId, h, say } from "./dom.js";
import { count } from "./format.js";

const SHOWN = 12;
// How long a claim that has arrived is still shown.
const STAY_MS = 4000;

const STATES = ["provisioning", "volume ready", "bound, pod pending", "in use"];

// How far a claim is, with the names of its volume and its node. Nothing if it does not move: its pod fits nowhere yet, or nobody uses it.
const stand = (model, name) => {
  const claim = model.claims.get(name);
  if (!claim) return undefined;
  const volume = claim.volume || model.reservedFor.get(name);
  const pods = [...(model.usersOf.get(name) ?? [])].map((pod) => model.pods.get(pod));
  const node = pods.find((pod) => pod.node)?.node || pods.find((pod) => pod.nominated)?.nominated || claim.selectedNode;
  const waits = pods.some((pod) => !pod.node);
  if (claim.phase === "Bound") return { volume, node, stage: waits ? 2 : 3, state: waits ? STATES[2] : pods.length > 0 ? STATES[3] : "bound" };
  if (volume) return { volume, node, stage: 1, state: STATES[1] };
  return claim.selectedNode ? { volume: undefined, node, stage: 0, state: STATES[0] } : undefined;
};

export class Flow {
  // `open` opens the details of an object. The map marks the volumes and nodes of claims on their way.
  constructor(open, map) {
    Object.assign(this, { open, map });
    this.list = byId("flow");
    this.shown = new Map();
    this.news = new Set();
  }

  // Claims that were bound so fast that nobody saw them on their way.
  hear(moments) {
    for (const moment of moments) if (moment.what === "claimBound") this.news.add(moment.claim);
  }

  // Starts anew, with another model.
  clear() {
    for (const { element } of this.shown.values()) element.remove();
    this.shown.clear();
    this.news.clear();
    this.map.moving(new Set(), new Set());
  }

  // Draws how far everything is. What has arrived goes after some time.
  draw(model, now) {
    const known = [...this.shown.keys()];
    const names = new Set(this.news);
    for (const name of model.open) if (stand(model, name)) names.add(name);
    for (const name of known) names.delete(name);
    this.news.clear();
    for (const name of known) this.move(name, stand(model, name), now);
    const coming = [...names].map((name) => [name, stand(model, name)]).filter(([, at]) => at);
    for (const [name, at] of coming.slice(0, Math.max(0, SHOWN - this.shown.size))) this.add(name, at, now);
    const more = coming.filter(([name]) => !this.shown.has(name)).length;
    this.markMap();
    say(byId("flow-more"), more > 0 ? `and ${count(more, "claim")} more` : this.shown.size === 0 ? "Nothing at the moment." : "");
  }

  // Marks where claims that have not arrived yet are going.
  markMap() {
    const under = [...this.shown.values()].filter(({ until }) => until === undefined);
    const names = (station) => new Set(under.map((one) => one[station].dataset.name).filter(Boolean));
    this.map.moving(names("volume"), names("node"));
  }

  add(name, at, now) {
    const station = (kind) => h("button", { class: "link", type: "button", "data-kind": kind });
    const [claim, volume, node] = ["claims", "volumes", "nodes"].map(station);
    for (const one of [claim, volume, node]) one.addEventListener("click", () => one.dataset.name && this.open(one.dataset.kind, one.dataset.name));
    const element = h("li", { class: "s0" }, h("span", { class: "stations" }, claim, volume, node), h("i", { class: "way", "aria-hidden": "true" }, h("u")), h("small", {}));
    const shown = { element, claim, volume, node, until: undefined };
    this.shown.set(name, shown);
    this.list.append(element);
    this.label(claim, name);
    // Begins at the claim and moves when it was drawn there.
    element.getBoundingClientRect();
    this.move(name, at, now);
  }

  label(button, name) {
    if (name) button.dataset.name = name;
    else delete button.dataset.name;
    say(button, name ?? "…");
    button.title = name ?? "";
    button.disabled = !name;
  }

  move(name, at, now) {
    const shown = this.shown.get(name);
    if (at?.stage === 3 || !at) shown.until ??= now + STAY_MS;
    else shown.until = undefined;
    if (shown.until <= now) {
      shown.element.remove();
      this.shown.delete(name);
      return;
    }
    if (!at) return;
    shown.element.className = `s${at.stage}`;
    this.label(shown.volume, at.volume);
    this.label(shown.node, at.node);
    say(shown.element.lastElementChild, at.state);
  }
}
