// The panel: what is known of one object, and why it is as it is.

import { byId, h } from "./dom.js";
import { objectAnswer, podAnswer, reasonsOf } from "./explain.js";
import { ago, bytes, count, cpu, percent } from "./format.js";
import { placeOf } from "./model.js";

const NAMES_SHOWN = 50;
const KINDS = { pods: "pod", claims: "pvc", volumes: "pv", nodes: "node" };
const TITLES = { pods: "Pod", claims: "Claim", volumes: "Volume", nodes: "Node", classes: "Class", pools: "Pool" };

const placeNames = ({ nodes = [], racks = [], zones = [] }) => [...nodes, ...racks, ...zones];

export class Details {
  // `ask` asks a server why; a page without one leaves it out. `now` is the time that is shown, and `isPast` says whether it has passed.
  constructor(map, { ask, now, isPast = () => false }) {
    Object.assign(this, { map, ask, now, isPast });
    this.panel = h("aside", { id: "panel", "aria-labelledby": "panel-title", tabindex: -1, hidden: true }, h("button", { id: "close", class: "act", type: "button" }, "Close"), h("h2", { id: "panel-title" }), h("div", { id: "panel-body" }));
    document.querySelector("main").after(this.panel);
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
    this.inPast = undefined;
    byId("panel-title").textContent = `${TITLES[kind]} ${name}`;
    this.panel.hidden = false;
    document.body.classList.add("opened");
    this.draw(this.model);
    this.panel.focus({ preventScroll: false });
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
    if (this.inPast !== this.isPast()) this.answerAnew();
    const row = model[kind].get(name);
    const missing = this.inPast ? "Did not exist at this time." : "No longer exists.";
    const facts = row ? this[kind](name, row) : [h("p", { class: "warn" }, missing)];
    // What is as it was keeps its place and its focus.
    const drawn = JSON.stringify([row, facts.map((one) => one?.textContent)]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    byId("panel-body").replaceChildren(...facts.filter(Boolean), this.answer);
  }

  // Explains what is shown, if it is shown as it is now. The past has its recorded messages: an explanation is always about now, so it is given
  // only on request, says so, and colours nothing.
  answerAnew() {
    const { kind, name } = this.shown;
    this.inPast = this.isPast();
    this.map.mark();
    this.answer.replaceChildren();
    if (!this.ask || !KINDS[kind]) return;
    if (!this.inPast) this.explain(kind, name);
    else this.answer.append(h("button", { id: "explain-now", class: "act", type: "button", onclick: () => this.explain(kind, name) }, "Explain as of now"));
  }

  // Asks the server why. Only the last question counts.
  async explain(kind, name) {
    const { shown, inPast } = this;
    const isCurrent = () => this.shown === shown && this.inPast === inPast;
    const slash = name.indexOf("/");
    const [namespace, own] = slash < 0 ? ["", name] : [name.slice(0, slash), name.slice(slash + 1)];
    const busy = h("p", { class: "sub" }, kind === "pods" ? "Asking every plugin about every node …" : "Asking berth explain …");
    this.answer.replaceChildren(busy);
    try {
      const { answer, remarks } = await this.ask(`explain?kind=${KINDS[kind]}&namespace=${namespace}&name=${own}`);
      if (!isCurrent()) return;
      const body = kind === "pods" ? this.podAnswer(name, answer, remarks) : objectAnswer(answer);
      const title = inPast ? "As of now" : this.answerTitle(kind, name);
      this.answer.replaceChildren(h("h3", {}, title), ...body.filter(Boolean));
    } catch (error) {
      if (isCurrent()) this.answer.replaceChildren(h("p", { class: "warn" }, `${inPast ? "As of now: " : "No answer: "}${error.message}`));
    }
  }

  answerTitle(kind, name) {
    if (kind !== "pods") return "More";
    return this.model.pods.get(name)?.node ? "Why here: if it were placed now" : "Why it is pending";
  }

  podAnswer(name, answer, remarks = []) {
    const pod = this.model.pods.get(name);
    if (!this.inPast && !pod?.node) this.map.mark(name, reasonsOf(answer));
    const assumed = remarks.filter((remark) => remark.startsWith("explained as if")).map((remark) => h("p", { class: "sub" }, `E${remark.slice(1)}.`));
    return [...assumed, ...podAnswer(answer, this.inPast ? undefined : pod?.message)];
  }

  facts(pairs) {
    return h("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== "" && value !== undefined && value !== null).flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
  }

  link(kind, name) {
    if (!name) return undefined;
    if (!this.model[kind].has(name)) return `${name} (not found)`;
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
        ["Owner", row.owner],
        ["Created", since ? ago(Math.floor((this.now() - since) / 10000) * 10000) : ""],
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
    const place = placeNames(row.place);
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
        ["Volumes", this.storage(name)],
        ["Pools", this.poolLinks(this.model.placedAt(`node ${name}`, "pools"))],
        ["Taints", (row.taints ?? []).join(", ")],
        ["Attachable", Object.entries(row.limits ?? {}).map(([driver, limit]) => `${driver}: ${count(limit, "volume")}`).join(", ")],
      ]),
      ...this.links("Pods", "pods", this.model.podsOn(name)),
      ...this.links("Local volumes", "volumes", this.model.placedAt(`node ${name}`, "volumes")),
    ];
  }

  // What the volumes of a node add up to.
  storage(node) {
    const names = this.model.placedAt(`node ${node}`, "volumes");
    if (names.length === 0) return "";
    const sum = (some) => some.reduce((total, name) => total + this.model.volumes.get(name).capacity, 0);
    const used = names.filter((name) => this.model.claimFor(name));
    const free = names.filter((name) => !this.model.claimFor(name));
    const asked = used.reduce((total, name) => total + this.model.askedOf(name), 0);
    const taken = used.length > 0 ? `${bytes(asked)} requested of ${bytes(sum(used))} in ${count(used.length, "volume")}` : "";
    const left = free.length > 0 ? `${bytes(sum(free))} free in ${count(free.length, "volume")}` : "none free";
    return [taken, left].filter(Boolean).join(", ");
  }

  pool(name) {
    const row = this.model.pools.get(name);
    return `${row.class}: ${bytes(this.model.usedOf(name))} in volumes, ${row.capacity === undefined ? "an unknown amount" : bytes(row.capacity)} left`;
  }

  poolLinks(names) {
    if (names.length === 0) return "";
    const items = names.slice(0, NAMES_SHOWN).map((name) => h("div", {}, h("button", { class: "link", type: "button", "data-kind": "pools", "data-name": name }, this.pool(name))));
    return names.length > NAMES_SHOWN ? [...items, h("div", { class: "more" }, `and ${names.length - NAMES_SHOWN} more`)] : items;
  }

  pools(name, row) {
    const place = placeNames(row.place);
    const beside = this.model.placedAt(placeOf(row.place), "volumes").filter((volume) => this.model.volumes.get(volume).class === row.class);
    return [
      this.facts([
        ["Class", row.class ? this.link("classes", row.class) : "none"],
        ["Driver", row.driver],
        ["Reached from", place.length > 0 ? place.join(", ") : "every node"],
        ["In volumes", bytes(this.model.usedOf(name))],
        ["Left", row.capacity === undefined ? "unknown" : bytes(row.capacity)],
      ]),
      ...this.links("Volumes", "volumes", beside),
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
      this.facts([["Pools", this.poolLinks(of("pools").sort())]]),
      ...this.links("Volumes", "volumes", of("volumes").sort()),
      ...this.links("Claims", "claims", of("claims").sort()),
    ];
  }
}
