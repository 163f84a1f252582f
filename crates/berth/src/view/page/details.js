// The panel: what is known of one object, and why it is as it is.

import { byId, h } from "./dom.js";
import { objectAnswer, podAnswer, reasonsOf } from "./explain.js";
import { ask } from "./feed.js";
import { ago, bytes, count, cpu, percent } from "./format.js";

const NAMES_SHOWN = 50;
const KINDS = { pods: "pod", claims: "pvc", volumes: "pv", nodes: "node" };
const TITLES = { pods: "Pod", claims: "Claim", volumes: "Volume", nodes: "Node", classes: "Class" };

export class Details {
  constructor(map) {
    this.map = map;
    this.panel = byId("panel");
    this.answer = h("div", { class: "answer", "aria-live": "polite" });
    byId("close").addEventListener("click", () => this.close());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    this.panel.addEventListener("click", (event) => {
      const { kind, name } = event.target.dataset ?? {};
      if (kind) this.open(kind, name);
    });
  }

  open(kind, name) {
    if (!this.shown) this.from = document.activeElement;
    this.shown = { kind, name };
    this.drawn = undefined;
    this.map.mark();
    this.answer.replaceChildren();
    byId("panel-title").textContent = `${TITLES[kind]} ${name}`;
    this.panel.hidden = false;
    document.body.classList.add("opened");
    this.draw(this.model);
    this.panel.focus({ preventScroll: false });
    if (KINDS[kind]) this.explain(kind, name);
  }

  close() {
    if (!this.shown) return;
    this.shown = undefined;
    this.panel.hidden = true;
    document.body.classList.remove("opened");
    this.map.mark();
    this.back();
  }

  // Gives the focus back to where it came from. What was drawn anew since is another element of the same name.
  back() {
    const { kind, name } = this.from?.dataset ?? {};
    const alike = () => name && [...document.querySelectorAll(`[data-kind="${kind}"]`)].find((one) => one.dataset.name === name);
    const to = this.from?.isConnected ? this.from : alike();
    to?.focus({ preventScroll: true });
  }

  // Draws what is known now.
  draw(model) {
    this.model = model;
    if (!this.shown) return;
    const { kind, name } = this.shown;
    const row = model[kind].get(name);
    const facts = row ? this[kind](name, row) : [h("p", { class: "warn" }, "It is not there any more.")];
    // What is as it was keeps its place and its focus.
    const drawn = JSON.stringify([row, facts.map((one) => one?.textContent)]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    byId("panel-body").replaceChildren(...facts.filter(Boolean), this.answer);
  }

  // Asks the server why. Only the last question counts.
  async explain(kind, name) {
    const shown = this.shown;
    const slash = name.indexOf("/");
    const [namespace, own] = slash < 0 ? ["", name] : [name.slice(0, slash), name.slice(slash + 1)];
    const busy = h("p", { class: "sub" }, "Asking every plugin about every node …");
    this.answer.replaceChildren(busy);
    try {
      const { answer } = await ask(`explain?kind=${KINDS[kind]}&namespace=${namespace}&name=${own}`);
      if (this.shown !== shown) return;
      const pod = kind === "pods" ? this.model.pods.get(name) : undefined;
      const placed = pod?.node;
      const title = kind === "pods" ? (placed ? "Why here: if it were placed now" : "Why it waits") : "More";
      const body = kind === "pods" ? podAnswer(answer, pod?.message) : objectAnswer(answer);
      this.answer.replaceChildren(h("h3", {}, title), ...body.filter(Boolean));
      if (kind === "pods" && !placed) this.map.mark(name, reasonsOf(answer));
    } catch (error) {
      if (this.shown === shown) this.answer.replaceChildren(h("p", { class: "warn" }, `No answer: ${error.message}`));
    }
  }

  facts(pairs) {
    return h("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== "" && value !== undefined && value !== null).flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
  }

  link(kind, name) {
    if (!name) return undefined;
    if (!this.model[kind].has(name)) return `${name} (not there)`;
    return h("button", { class: "link", type: "button", "data-kind": kind, "data-name": name }, name);
  }

  links(title, kind, names) {
    if (names.length === 0) return [];
    const items = names.slice(0, NAMES_SHOWN).map((name) => h("li", {}, this.link(kind, name)));
    if (names.length > NAMES_SHOWN) items.push(h("li", { class: "more" }, `and ${names.length - NAMES_SHOWN} more`));
    return [h("h4", {}, title), h("ul", {}, ...items)];
  }

  pods(name, row) {
    const waits = this.model.waiting.has(name);
    const since = Date.parse(row.created);
    return [
      this.facts([
        ["Phase", row.deleting ? `${row.phase}, being deleted` : row.phase],
        ["Node", row.node ? this.link("nodes", row.node) : row.nominated ? `none yet; ${row.nominated} is chosen` : "none"],
        ["Requests", `${cpu(row.cpu)} CPU, ${bytes(row.memory)} memory`],
        ["Made by", row.owner],
        ["Made", since ? ago(Math.floor((Date.now() - since) / 10000) * 10000) : ""],
      ]),
      waits && row.message ? h("p", { class: "warn" }, row.message) : null,
      ...this.links("Claims", "claims", row.claims ?? []),
      ...this.links("Volumes", "volumes", [...this.model.tied("pods", name).volumes]),
    ];
  }

  claims(name, row) {
    return [
      this.facts([
        ["Phase", row.deleting ? `${row.phase}, being deleted` : row.phase],
        ["Requests", bytes(row.requested)],
        ["Class", row.class ? this.link("classes", row.class) : "none"],
        ["Selected node", row.selectedNode ? this.link("nodes", row.selectedNode) : ""],
        ["Volume", row.volume ? this.link("volumes", row.volume) : "none yet"],
      ]),
      ...this.links("Used by", "pods", [...(this.model.usersOf.get(name) ?? [])].sort()),
    ];
  }

  volumes(name, row) {
    const place = [...(row.place.nodes ?? []), ...(row.place.racks ?? []), ...(row.place.zones ?? [])];
    const claim = this.model.claimFor(name);
    return [
      this.facts([
        ["Phase", row.phase],
        ["Size", bytes(row.capacity)],
        ["Class", row.class ? this.link("classes", row.class) : "none"],
        ["Driver", row.driver],
        ["Usable on", place.length > 0 ? place.join(", ") : "every node"],
        ["Claim", claim ? this.link("claims", claim) : "none: it is free"],
      ]),
      ...this.links("Used by", "pods", [...this.model.tied("volumes", name).pods].sort()),
    ];
  }

  nodes(name, row) {
    const amount = (one, words) => `${words(one.requested)} of ${words(one.allocatable)} requested (${Math.round(percent(one.requested, one.allocatable))}%), ${words(one.allocatable - one.requested)} free`;
    const plain = (number) => String(number);
    const state = [row.ready ? "ready" : "not ready", row.cordoned ? "cordoned" : ""].filter(Boolean).join(", ");
    return [
      this.facts([
        ["State", state],
        ["Zone", row.zone],
        ["Rack", row.rack],
        ["CPU", amount(row.cpu, cpu)],
        ["Memory", amount(row.memory, bytes)],
        ["Pods", amount(row.pods, plain)],
        ["Taints", (row.taints ?? []).join(", ")],
        ["Attachable", Object.entries(row.limits ?? {}).map(([driver, limit]) => `${driver}: ${count(limit, "volume")}`).join(", ")],
      ]),
      ...this.links("Pods", "pods", this.model.podsOn(name)),
      ...this.links("Local volumes", "volumes", this.model.placedAt(`node ${name}`, "volumes")),
    ];
  }

  classes(name, row) {
    const of = (table) => [...this.model[table]].filter(([, one]) => one.class === name).map(([own]) => own);
    return [
      this.facts([
        ["Provisioner", row.provisioner],
        ["Binding", row.binding],
        ["Default", row.default ? "yes" : "no"],
      ]),
      ...this.links("Volumes", "volumes", of("volumes").sort()),
      ...this.links("Claims", "claims", of("claims").sort()),
    ];
  }
}
