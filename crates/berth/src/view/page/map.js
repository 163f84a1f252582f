// The map: zones, racks, nodes, and what is on them. Only what changed is drawn again.

import { bar, byId, h } from "./dom.js";
import { bytes, count, cpu, percent, short } from "./format.js";
import { reaches } from "./model.js";

// Beyond so many nodes each is a small square, and details come when it is opened.
const LARGE_MAX = 60;
const PODS_SHOWN = 12;
const VOLUMES_SHOWN = 24;
const COLOURS = 5;
const ORDER = new Intl.Collator("en", { numeric: true });

const label = (model, volume) => {
  const claim = model.claimFor(volume);
  return claim && volume.startsWith("pvc-") ? short(claim) : volume;
};

export const volumeItem = (model, name, open) => {
  const row = model.volumes.get(name);
  const claim = model.claimFor(name);
  const requested = claim && model.claims.get(claim)?.volume === name ? model.claims.get(claim).requested : 0;
  const words = claim ? `${bytes(requested)}/${bytes(row.capacity)}` : bytes(row.capacity);
  const state = claim ? (requested ? "" : " reserved") : " free";
  return h(
    "li",
    { class: `vol${state}` },
    h("button", { type: "button", "data-kind": "volumes", "data-name": name, title: `${name}: ${row.phase}${claim ? `, ${claim}` : ""}`, onclick: () => open("volumes", name) }, label(model, name)),
    bar(percent(requested, row.capacity)),
    h("em", {}, words),
  );
};

const poolItem = (model, name) => {
  const row = model.pools.get(name);
  const left = row.capacity === undefined ? "unknown" : bytes(row.capacity);
  return h("li", { class: "vol pool", title: `pool of class ${row.class}${row.driver ? ` (${row.driver})` : ""}` }, h("span", {}, `${row.class} pool`), h("em", {}, `${left} left`));
};

const several = (items, shown, what) => (items.length > shown ? [...items.slice(0, shown), h("li", { class: "more" }, `and ${count(items.length - shown, what)} more`)] : items);

export class Topology {
  constructor(open) {
    this.open = open;
    this.elements = new Map();
    this.zones = byId("zones");
    this.section = byId("topology");
    this.marks = new Map();
    this.places = new Map();
    this.sums = new Map();
    for (const [event, on] of [["pointerover", true], ["focusin", true], ["pointerout", false], ["focusout", false]]) {
      document.addEventListener(event, (at) => this.tie(at.target, on));
    }
    this.zones.addEventListener("keydown", (event) => this.move(event));
  }

  show(model) {
    this.model = model;
    model.changed.layout = true;
    this.draw();
  }

  draw() {
    const model = this.model;
    const changed = model.take();
    const isNew = (place) => /^(zone|rack) /.test(place) && !this.places.has(place);
    if (changed.layout || [...changed.places].some(isNew)) {
      this.layOut();
      for (const zone of this.sums.keys()) this.sumUp(zone);
      return;
    }
    const nodes = new Set(changed.nodes);
    for (const place of changed.places) {
      if (this.places.has(place)) this.fillPlace(place, this.places.get(place));
      else nodes.add(place.slice("node ".length));
    }
    for (const name of nodes) this.drawNode(name);
    if ([...changed.places].some((place) => this.isShared(place))) this.drawShared();
    for (const zone of new Set([...changed.nodes].map((name) => model.nodes.get(name)?.zone))) this.sumUp(zone);
  }

  // Whether a place is drawn below the zones: also that of a node that is gone.
  isShared(place) {
    return place === "shared" || (place.startsWith("node ") && !this.model.nodes.has(place.slice(5)));
  }

  // Draws all zones anew; the elements of nodes stay.
  layOut() {
    const model = this.model;
    const small = model.nodes.size > LARGE_MAX;
    if (small !== this.small) this.elements.clear();
    this.small = small;
    this.section.classList.toggle("small", small);
    this.section.classList.toggle("large", !small);
    const zones = new Map();
    const rackOf = (zone, rack) => {
      if (!zones.has(zone)) zones.set(zone, new Map());
      if (rack !== undefined && !zones.get(zone).has(rack)) zones.get(zone).set(rack, []);
      return zones.get(zone).get(rack);
    };
    for (const name of [...model.nodes.keys()].sort(ORDER.compare)) {
      const { zone, rack } = model.nodes.get(name);
      rackOf(zone, rack).push(name);
    }
    // A volume of a zone or rack whose nodes are gone still is there.
    for (const place of model.at.keys()) {
      if (place.startsWith("zone ")) rackOf(place.slice(5));
      if (place.startsWith("rack ")) rackOf(...place.slice(5).split("/"));
    }
    this.places = new Map();
    this.sums = new Map();
    for (const name of this.elements.keys()) if (!model.nodes.has(name)) this.elements.delete(name);
    const focused = document.activeElement?.dataset?.name;
    const names = [...zones.keys()].sort(ORDER.compare);
    this.zones.replaceChildren(...names.map((zone) => this.zone(zone, zones.get(zone))));
    this.drawShared();
    const first = this.zones.querySelector(".node > button");
    if (this.small && first) first.tabIndex = 0;
    if (focused) [...this.zones.querySelectorAll("[data-name]")].find((one) => one.dataset.name === focused)?.focus({ preventScroll: true });
  }

  zone(name, racks) {
    const sum = h("div", { class: "sum" });
    this.sums.set(name, sum);
    const lists = [...racks.keys()].sort(ORDER.compare).map((rack) => this.rack(name, rack, racks.get(rack)));
    return h("section", { class: "zone", "aria-label": name || "without a zone" }, h("h3", {}, name || "Without a zone"), sum, h("div", { class: "racks" }, ...lists), this.place(`zone ${name}`));
  }

  rack(zone, rack, nodes) {
    const list = h("ul", { class: "nodes" }, ...nodes.map((name) => this.node(name)));
    return h("div", { class: "rack" }, rack ? h("h4", {}, rack) : null, h("div", {}, list, this.place(`rack ${zone}/${rack}`)));
  }

  place(place) {
    const list = h("ul", { class: "vols" });
    this.places.set(place, list);
    this.fillPlace(place, list);
    return list;
  }

  fillPlace(place, list) {
    this.fillList(list, this.model.placedAt(place, "volumes"), this.model.placedAt(place, "pools"));
  }

  fillList(list, volumes, pools) {
    const all = [...pools.map((name) => () => poolItem(this.model, name)), ...volumes.map((name) => () => volumeItem(this.model, name, this.open))];
    const items = all.slice(0, VOLUMES_SHOWN).map((make) => make());
    if (all.length > VOLUMES_SHOWN) items.push(h("li", { class: "more" }, `and ${all.length - VOLUMES_SHOWN} more`));
    list.replaceChildren(...items);
    list.hidden = all.length === 0;
  }

  drawShared() {
    const list = byId("shared").querySelector("ul");
    const places = [...this.model.at.keys()].filter((place) => this.isShared(place));
    const of = (table) => places.flatMap((place) => this.model.placedAt(place, table)).sort();
    this.fillList(list, of("volumes"), of("pools"));
    byId("shared").hidden = list.hidden;
  }

  node(name) {
    let element = this.elements.get(name);
    if (!element) {
      element = h("li", {});
      this.elements.set(name, element);
    }
    this.fillNode(name, element);
    return element;
  }

  drawNode(name) {
    const element = this.elements.get(name);
    if (element && this.model.nodes.has(name)) this.fillNode(name, element);
  }

  fillNode(name, element) {
    const model = this.model;
    const row = model.nodes.get(name);
    const states = [row.ready ? null : "not ready", row.cordoned ? "cordoned" : null].filter(Boolean);
    element.className = ["node", row.cordoned ? "cordoned" : "", row.ready ? "" : "notready", this.marks.get(name) ?? ""].filter(Boolean).join(" ");
    const use = (amount) => percent(amount.requested, amount.allocatable);
    const spoken = `${name}${states.length ? `, ${states.join(", ")}` : ""}, ${count(row.pods.requested, "pod")}, CPU ${Math.round(use(row.cpu))}%, memory ${Math.round(use(row.memory))}%`;
    const focused = element.contains(document.activeElement) ? document.activeElement.dataset.name : undefined;
    if (this.small) {
      const had = element.firstChild?.tabIndex === 0;
      element.style.setProperty("--fill", `${Math.min(100, Math.max(use(row.cpu), use(row.memory))).toFixed(0)}%`);
      const button = h("button", { type: "button", "data-kind": "nodes", "data-name": name, "aria-label": spoken, title: spoken, tabindex: had ? 0 : -1, onclick: () => this.open("nodes", name) });
      element.replaceChildren(button);
    } else {
      const pods = model.podsOn(name).map((pod) => {
        const { phase } = model.pods.get(pod);
        return h("li", {}, h("button", { class: phase === "Running" ? "pod" : "pod stuck", type: "button", "data-kind": "pods", "data-name": pod, title: `${pod}: ${phase}`, onclick: () => this.open("pods", pod) }, short(pod)));
      });
      const volumes = model.placedAt(`node ${name}`, "volumes").map((volume) => volumeItem(model, volume, this.open));
      const pools = model.placedAt(`node ${name}`, "pools").map((pool) => poolItem(model, pool));
      element.replaceChildren(
        h("p", { class: "head" }, h("button", { type: "button", "data-kind": "nodes", "data-name": name, "aria-label": spoken, onclick: () => this.open("nodes", name) }, name), h("small", {}, states.join(", "))),
        h("div", { class: "use" }, h("span", {}, "CPU"), bar(use(row.cpu)), h("em", {}, `${cpu(row.cpu.requested)}/${cpu(row.cpu.allocatable)}`), h("span", {}, "Mem"), bar(use(row.memory)), h("em", {}, `${bytes(row.memory.requested)}/${bytes(row.memory.allocatable)}`)),
        h("ul", { class: "pods" }, ...several(pods, PODS_SHOWN, "pod")),
        h("ul", { class: "vols" }, ...several([...pools, ...volumes], PODS_SHOWN, "volume")),
      );
    }
    if (focused) [...element.querySelectorAll("[data-name]")].find((one) => one.dataset.name === focused)?.focus({ preventScroll: true });
  }

  // One line and two bars for a zone.
  sumUp(zone) {
    const element = this.sums.get(zone);
    if (!element) return;
    const sum = { nodes: 0, ready: 0, pods: 0, cpu: [0, 0], memory: [0, 0] };
    for (const row of this.model.nodes.values()) {
      if (row.zone !== zone) continue;
      sum.nodes++;
      if (row.ready && !row.cordoned) sum.ready++;
      sum.pods += row.pods.requested;
      for (const what of ["cpu", "memory"]) {
        sum[what][0] += row[what].requested;
        sum[what][1] += row[what].allocatable;
      }
    }
    const ready = sum.ready === sum.nodes ? "" : `, ${sum.ready} of them for new pods`;
    element.replaceChildren(
      h("p", { class: "sub" }, `${count(sum.nodes, "node")}${ready} · ${count(sum.pods, "pod")}`),
      h("div", { class: "use" }, h("span", {}, "CPU"), bar(percent(...sum.cpu)), h("em", {}, `${cpu(sum.cpu[0])}/${cpu(sum.cpu[1])}`), h("span", {}, "Mem"), bar(percent(...sum.memory)), h("em", {}, `${bytes(sum.memory[0])}/${bytes(sum.memory[1])}`)),
    );
  }

  // Marks what hangs together with what is pointed at.
  tie(target, on) {
    const from = target instanceof Element ? target.closest("[data-kind]") : null;
    for (const marked of document.querySelectorAll(".tied")) marked.classList.remove("tied");
    if (!on || !from || !this.model || from.dataset.kind === "nodes") return;
    const tied = this.model.tied(from.dataset.kind, from.dataset.name);
    for (const kind of ["pods", "claims", "volumes"]) {
      if (tied[kind].size === 0) continue;
      for (const one of document.querySelectorAll(`[data-kind="${kind}"]`)) if (tied[kind].has(one.dataset.name)) one.classList.add("tied");
    }
    // The nodes that can reach a volume which is free, or that of the claim.
    for (const volume of tied.volumes) {
      const place = this.model.volumes.get(volume)?.place;
      const isFree = from.dataset.kind === "volumes" && tied.pods.size === 0;
      if (!place || !(isFree || place.nodes?.length === 1)) continue;
      for (const [name, element] of this.elements) {
        const row = this.model.nodes.get(name);
        if (row && reaches(place, name, row)) element.classList.add("tied");
      }
    }
    for (const pod of tied.pods) this.elements.get(this.model.pods.get(pod)?.node)?.classList.add("tied");
  }

  // Arrows go from square to square, so that Tab need not.
  move(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !this.small || event.target.dataset.kind !== "nodes") return;
    event.preventDefault();
    const all = [...this.zones.querySelectorAll(".node > button")];
    const next = all[all.indexOf(event.target) + step];
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  // Colours nodes by why they refuse a pod, the most frequent reason first. Without reasons: no longer.
  mark(pod, reasons) {
    this.marks.clear();
    const legend = byId("refusal-legend");
    legend.replaceChildren();
    legend.hidden = !reasons;
    if (reasons) legend.append(`Refusing ${pod}:`);
    (reasons ?? []).forEach(({ reason, nodes }, index) => {
      const name = `r${Math.min(index, COLOURS - 1)}`;
      const coloured = nodes.filter((node) => !this.marks.has(node));
      for (const node of coloured) this.marks.set(node, name);
      if (coloured.length > 0) legend.append(h("span", { class: "refusal" }, h("i", { class: `swatch ${name}` }), `${reason} (${coloured.length})`));
    });
    for (const name of this.elements.keys()) this.drawNode(name);
  }
}
