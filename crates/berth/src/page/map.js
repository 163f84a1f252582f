// The map: zones, racks, nodes, and what is on them. Only what changed is drawn again.

import { bar, byId, h, say } from "./dom.js";
import { bytes, count, cpu, percent, short } from "./format.js";
import { reaches } from "./model.js";
import { sumUp } from "./sums.js";

// Beyond so many nodes each is a small square, and details come when it is opened.
const LARGE_MAX = 60;
// Beyond so many, racks are folded to their sums, and their nodes come when somebody opens them.
const FLAT_MAX = 1000;
const PODS_SHOWN = 12;
const VOLUMES_SHOWN = 24;
const COLOURS = 5;
// What arrows move between on a large map: folded racks, and the squares of nodes.
const STOPS = ".fold, .node > button";
const ORDER = new Intl.Collator("en", { numeric: true });

const label = (model, volume) => {
  const claim = model.claimFor(volume);
  return claim && volume.startsWith("pvc-") ? short(claim) : volume;
};

// Bars with what is requested of what there is. What an object does not tell has no bar.
const use = (rows) => h("div", { class: "use" }, ...rows.filter(([, [, whole]]) => whole > 0).flatMap(([name, [part, whole], words]) => [h("span", {}, name), bar(percent(part, whole)), h("em", {}, `${words(part)}/${words(whole)}`)]));

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
    this.racks = new Map();
    // Racks that are folded and that somebody opened, by zone and name.
    this.opened = new Set();
    // What claims on their way are going to.
    this.under = { volumes: new Set(), nodes: new Set() };
    this.podWords = new Map();
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
      return;
    }
    const nodes = new Set(changed.nodes);
    for (const place of changed.places) {
      if (this.places.has(place)) this.fillPlace(place, this.places.get(place));
      else nodes.add(place.slice("node ".length));
    }
    for (const name of nodes) this.drawNode(name);
    if ([...changed.places].some((place) => this.isShared(place))) this.drawShared();
  }

  // Whether a place is drawn below the zones: also that of a node that is gone.
  isShared(place) {
    return place === "shared" || (place.startsWith("node ") && !this.model.nodes.has(place.slice(5)));
  }

  // Draws all zones anew; the elements of nodes stay.
  layOut() {
    const model = this.model;
    const small = model.nodes.size > LARGE_MAX;
    this.folds = model.nodes.size > FLAT_MAX;
    this.section.classList.toggle("folds", this.folds);
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
    for (const zone of this.sums.keys()) if (!zones.has(zone)) this.sums.delete(zone);
    this.racks = new Map();
    this.drawn = new Set();
    const focused = document.activeElement?.dataset?.name ?? document.activeElement?.dataset?.rack;
    const names = [...zones.keys()].sort(ORDER.compare);
    this.zones.replaceChildren(...names.map((zone) => this.zone(zone, zones.get(zone))));
    for (const name of this.elements.keys()) if (!this.drawn.has(name)) this.elements.delete(name);
    this.drawShared();
    this.drawFoldedMarks();
    const again = focused && [...this.zones.querySelectorAll("[data-name], [data-rack]")].find((one) => (one.dataset.name ?? one.dataset.rack) === focused);
    again?.focus({ preventScroll: true });
    const stop = again?.matches(STOPS) ? again : this.zones.querySelector(STOPS);
    if (!this.small) return;
    for (const one of this.zones.querySelectorAll(STOPS)) one.tabIndex = one === stop ? 0 : -1;
  }

  zone(name, racks) {
    const sum = this.sums.get(name) ?? h("div", { class: "sum" });
    this.sums.set(name, sum);
    const lists = [...racks.keys()].sort(ORDER.compare).map((rack) => this.rack(name, rack, racks.get(rack)));
    return h("section", { class: "zone", "aria-label": name || "without a zone" }, h("h3", {}, name || "Without a zone"), sum, h("div", { class: "racks" }, ...lists), this.place(`zone ${name}`));
  }

  rack(zone, rack, nodes) {
    const key = `${zone}/${rack}`;
    const line = h("small", {});
    const own = this.place(`rack ${key}`);
    const isFolded = this.folds && nodes.length > 0;
    const isOpen = !isFolded || this.opened.has(key);
    const list = isOpen ? h("ul", { class: "nodes" }, ...nodes.map((name) => this.node(name))) : null;
    if (!isFolded) {
      const element = h("div", { class: "rack" }, rack ? h("h4", {}, h("span", {}, rack), line) : null, h("div", {}, list, own));
      this.racks.set(key, { element, line });
      return element;
    }
    const [bars, marks] = [h("div", {}), h("p", { class: "legend marks" })];
    const button = h("button", { class: "fold", type: "button", "aria-expanded": String(isOpen), "data-rack": key, tabindex: -1, onclick: () => this.fold(key) }, rack || "Nodes without a rack");
    const element = h("div", { class: isOpen ? "rack opened" : "rack" }, h("h4", {}, button, line), h("div", {}, bars, marks, list, own));
    this.racks.set(key, { element, line, bars, marks });
    return element;
  }

  // Opens or folds a rack.
  fold(key) {
    if (!this.opened.delete(key)) this.opened.add(key);
    this.layOut();
    this.drawSums();
  }

  rackOf(node) {
    const row = this.model.nodes.get(node);
    return row && this.racks.get(`${row.zone}/${row.rack}`);
  }

  // Where a node is drawn: itself, or its folded rack.
  spot(node) {
    return this.elements.get(node) ?? this.rackOf(node)?.element;
  }

  place(place) {
    const list = h("ul", { class: "vols" });
    this.places.set(place, list);
    this.fillPlace(place, list);
    return h("div", { class: "own" }, h("h4", {}, `Volumes and pools of the ${place.startsWith("zone ") ? "zone" : "rack"}`), list);
  }

  fillPlace(place, list) {
    this.fillList(list, this.model.placedAt(place, "volumes"), this.model.placedAt(place, "pools"));
  }

  fillList(list, volumes, pools) {
    const all = [...pools.map((name) => () => this.poolItem(name)), ...volumes.map((name) => () => this.volumeItem(name))];
    const items = all.slice(0, VOLUMES_SHOWN).map((make) => make());
    if (all.length > VOLUMES_SHOWN) items.push(h("li", { class: "more" }, `and ${all.length - VOLUMES_SHOWN} more`));
    list.replaceChildren(...items);
    list.hidden = all.length === 0;
  }

  volumeItem(name) {
    const row = this.model.volumes.get(name);
    const claim = this.model.claimFor(name);
    const requested = this.model.askedOf(name);
    const words = claim ? `${bytes(requested)}/${bytes(row.capacity)}` : bytes(row.capacity);
    const state = claim ? (requested ? "" : " reserved") : " free";
    return h(
      "li",
      { class: `vol${state}${this.under.volumes.has(name) ? " moving" : ""}` },
      h("button", { type: "button", "data-kind": "volumes", "data-name": name, title: `${name}: ${row.phase}${claim ? `, ${claim}` : ""}`, onclick: () => this.open("volumes", name) }, label(this.model, name)),
      bar(percent(requested, row.capacity)),
      h("em", {}, words),
    );
  }

  poolItem(name) {
    const row = this.model.pools.get(name);
    const used = this.model.usedOf(name);
    const whole = row.capacity === undefined ? undefined : used + row.capacity;
    const left = row.capacity === undefined ? "an unknown amount" : bytes(row.capacity);
    const title = `pool of class ${row.class}${row.driver ? ` (${row.driver})` : ""}: ${bytes(used)} in volumes, ${left} left`;
    return h(
      "li",
      { class: "vol pool" },
      h("button", { type: "button", "data-kind": "pools", "data-name": name, title, onclick: () => this.open("pools", name) }, `${row.class} pool`),
      bar(percent(used, whole ?? 0)),
      h("em", {}, whole === undefined ? bytes(used) : `${bytes(used)}/${bytes(whole)}`),
    );
  }

  drawShared() {
    const list = byId("shared").querySelector("ul");
    const places = [...this.model.at.keys()].filter((place) => this.isShared(place));
    const of = (table) => places.flatMap((place) => this.model.placedAt(place, table)).sort();
    this.fillList(list, of("volumes"), of("pools"));
    byId("shared").hidden = list.hidden;
  }

  node(name) {
    this.drawn.add(name);
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
    element.className = ["node", row.cordoned ? "cordoned" : "", row.ready ? "" : "notready", this.marks.get(name) ?? "", this.under.nodes.has(name) ? "moving" : ""].filter(Boolean).join(" ");
    const share = (amount) => percent(amount.requested, amount.allocatable);
    const local = model.placedAt(`node ${name}`, "volumes");
    const taints = (row.taints ?? []).filter((taint) => !taint.startsWith("node.kubernetes.io/"));
    const spoken = `${name}${states.length ? `, ${states.join(", ")}` : ""}, ${count(row.pods.requested, "pod")}, CPU ${Math.round(share(row.cpu))}%, memory ${Math.round(share(row.memory))}%${taints.length > 0 ? `, ${count(taints.length, "taint")}` : ""}`;
    const focused = element.contains(document.activeElement) ? document.activeElement.dataset.name : undefined;
    if (this.small) {
      const bound = percent(local.filter((volume) => model.claimFor(volume)).length, local.length);
      element.style.setProperty("--fill", `${Math.min(100, Math.max(share(row.cpu), share(row.memory), bound)).toFixed(0)}%`);
      element.title = spoken;
      // The button stays: making five thousand anew is what costs.
      const button = element.firstElementChild ?? h("button", { type: "button", "data-kind": "nodes", "data-name": name, tabindex: -1, onclick: () => this.open("nodes", name) });
      button.setAttribute("aria-label", spoken);
      if (!button.isConnected) element.append(button);
      return;
    }
    const pods = model.podsOn(name).map((pod) => {
      const { phase } = model.pods.get(pod);
      const change = this.podWords.get(pod);
      const style = `${phase === "Running" && row.ready ? "pod" : "pod stuck"}${change ? " changes" : ""}`;
      return h("li", {}, h("button", { class: style, type: "button", "data-kind": "pods", "data-name": pod, title: `${pod}: ${phase}${change ? `, ${change}` : ""}`, onclick: () => this.open("pods", pod) }, short(pod)));
    });
    const volumes = local.map((volume) => this.volumeItem(volume));
    const pools = model.placedAt(`node ${name}`, "pools").map((pool) => this.poolItem(pool));
    element.replaceChildren(
      h("p", { class: "head" }, h("button", { type: "button", "data-kind": "nodes", "data-name": name, "aria-label": spoken, onclick: () => this.open("nodes", name) }, name), h("small", {}, states.join(", "))),
      use([["CPU", [row.cpu.requested, row.cpu.allocatable], cpu], ["Mem", [row.memory.requested, row.memory.allocatable], bytes]]),
      taints.length > 0 ? h("p", { class: "taints", title: taints.join("\n") }, taints.join(", ")) : "",
      h("ul", { class: "pods" }, ...several(pods, PODS_SHOWN, "pod")),
      h("ul", { class: "vols" }, ...several([...pools, ...volumes], PODS_SHOWN, "volume")),
    );
    if (focused) [...element.querySelectorAll("[data-name]")].find((one) => one.dataset.name === focused)?.focus({ preventScroll: true });
  }

  // A line and bars for each zone, and a line for each rack.
  drawSums({ zones } = sumUp(this.model)) {
    for (const [zone, { sum, racks }] of zones) {
      const element = this.sums.get(zone);
      const open = sum.open === sum.nodes ? "" : `, ${sum.open} of them for new pods`;
      const storage = `Volumes: ${bytes(sum.asked)} requested of ${bytes(sum.used)}, ${bytes(sum.free)} free${sum.pools > 0 ? `, ${bytes(sum.left)} left in pools` : ""}`;
      const bars = use([["CPU", sum.cpu, cpu], ["Mem", sum.memory, bytes], ["Vol", [sum.used, sum.used + sum.free + sum.left], bytes]]);
      element?.replaceChildren(h("p", { class: "sub" }, `${count(sum.nodes, "node")}${open} · ${count(sum.pods, "pod")}`), h("p", { class: "sub" }, sum.volumes + sum.pools > 0 ? storage : ""), bars);
      for (const [rack, sum] of racks) {
        const { line, bars } = this.racks.get(`${zone}/${rack}`) ?? {};
        if (bars) {
          const closed = sum.nodes - sum.open;
          say(line, `${count(sum.nodes, "node")}, ${count(sum.pods, "pod")}${closed > 0 ? `, ${closed} not ready or cordoned` : ""}`);
          bars.replaceChildren(use([["CPU", sum.cpu, cpu], ["Mem", sum.memory, bytes], ["Vol", [sum.used, sum.used + sum.free + sum.left], bytes]]));
          continue;
        }
        // One node says it for itself.
        if (line && sum.nodes > 1) say(line, `${sum.nodes} nodes, CPU\u00a0${Math.round(percent(...sum.cpu))}%, Mem\u00a0${Math.round(percent(...sum.memory))}%`);
      }
    }
  }

  // Marks what hangs together with what is pointed at.
  tie(target, on) {
    const from = target instanceof Element ? target.closest("[data-kind]") : null;
    for (const marked of document.querySelectorAll(".tied")) marked.classList.remove("tied");
    if (!on || !from || !this.model || from.dataset.kind === "nodes") return;
    if (from.dataset.kind === "pools") this.tieReach(this.model.pools.get(from.dataset.name)?.place);
    const tied = this.model.tied(from.dataset.kind, from.dataset.name);
    for (const kind of ["pods", "claims", "volumes"]) {
      if (tied[kind].size === 0) continue;
      for (const one of document.querySelectorAll(`[data-kind="${kind}"]`)) if (tied[kind].has(one.dataset.name)) one.classList.add("tied");
    }
    // The nodes that can reach a volume which is free, or that of the claim.
    for (const volume of tied.volumes) {
      const place = this.model.volumes.get(volume)?.place;
      const isFree = from.dataset.kind === "volumes" && tied.pods.size === 0;
      if (isFree || place?.nodes?.length === 1) this.tieReach(place);
    }
    for (const pod of tied.pods) this.spot(this.model.pods.get(pod)?.node)?.classList.add("tied");
  }

  // Marks the nodes that can reach a place.
  tieReach(place) {
    if (!place) return;
    for (const [name, row] of this.model.nodes) if (reaches(place, name, row)) this.spot(name)?.classList.add("tied");
  }

  // Marks the volumes and nodes that claims are on their way to.
  moving(volumes, nodes) {
    const alike = (a, b) => a.size === b.size && [...a].every((name) => b.has(name));
    if (alike(volumes, this.under.volumes) && alike(nodes, this.under.nodes)) return;
    this.under = { volumes, nodes };
    for (const marked of this.section.querySelectorAll(".moving")) marked.classList.remove("moving");
    for (const name of nodes) this.spot(name)?.classList.add("moving");
    for (const one of this.section.querySelectorAll('.vol > [data-kind="volumes"]')) if (volumes.has(one.dataset.name)) one.parentElement.classList.add("moving");
  }

  // Arrows go from square to square and from rack to rack, so that Tab need not.
  move(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !this.small || !event.target.matches(STOPS)) return;
    event.preventDefault();
    const all = [...this.zones.querySelectorAll(STOPS)];
    const next = all[all.indexOf(event.target) + step];
    if (!next) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  // Colours nodes by why they refuse a pod, the most frequent reason first. Without reasons: no longer.
  mark(pod, reasons) {
    this.refusals = reasons && { title: `Refusing ${pod}:`, groups: reasons.map(({ reason, nodes }) => ({ words: reason, nodes })), pods: new Map() };
    this.colour();
  }

  // Colours nodes by what a change that somebody asks about would do to them, and marks its pods. Without a change: no longer.
  compare(change) {
    this.change = change;
    this.colour();
  }

  colour() {
    const shown = this.refusals ?? this.change;
    const before = this.marks.size + this.podWords.size;
    this.marks.clear();
    this.podWords = shown?.pods ?? new Map();
    const legend = byId("refusal-legend");
    legend.replaceChildren();
    legend.hidden = !shown;
    if (shown) legend.append(shown.title);
    (shown?.groups ?? []).forEach(({ words, nodes }, index) => {
      const name = `r${Math.min(index, COLOURS - 1)}`;
      const coloured = nodes.filter((node) => !this.marks.has(node) && this.model.nodes.has(node));
      for (const node of coloured) this.marks.set(node, name);
      if (coloured.length > 0) legend.append(h("span", { class: "refusal" }, h("i", { class: `swatch ${name}` }), `${words} (${coloured.length})`));
    });
    if (shown?.clear) legend.append(h("button", { class: "act", type: "button", onclick: shown.clear }, "Clear"));
    if (before === 0 && this.marks.size + this.podWords.size === 0) return;
    for (const name of this.elements.keys()) this.drawNode(name);
    this.drawFoldedMarks();
  }

  // How many nodes of a folded rack have each colour.
  drawFoldedMarks() {
    if (!this.folds) return;
    const counts = new Map();
    for (const [node, name] of this.marks) {
      const { marks } = this.rackOf(node) ?? {};
      if (!marks) continue;
      if (!counts.has(marks)) counts.set(marks, new Map());
      counts.get(marks).set(name, (counts.get(marks).get(name) ?? 0) + 1);
    }
    for (const { marks } of this.racks.values()) marks?.replaceChildren(...[...(counts.get(marks) ?? [])].sort().map(([name, number]) => h("span", { class: "refusal" }, h("i", { class: `swatch ${name}` }), String(number))));
  }
}
