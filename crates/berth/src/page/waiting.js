// The pending pods, those with the same reason together.

import { byId, h } from "./dom.js";
import { count, duration } from "./format.js";

const GROUPS_SHOWN = 20;
const PODS_SHOWN = 30;

// Reasons differ in numbers alone while nodes come and go: the words in front of them are what a group has in common.
const reason = (model, pod) => pod.message || (pod.nominated ? `waiting for ${pod.nominated}` : unbound(model, pod) ?? "not tried yet");

const unbound = (model, pod) => {
  const open = (pod.claims ?? []).find((claim) => !model.claims.has(claim));
  return open && `waiting for claim ${open}`;
};

export class Waiting {
  constructor(open) {
    this.open = open;
    this.drawn = undefined;
  }

  draw(model, now) {
    const groups = new Map();
    for (const name of model.waiting) {
      const why = reason(model, model.pods.get(name));
      if (!groups.has(why)) groups.set(why, []);
      groups.get(why).push(name);
    }
    const sorted = [...groups].sort((a, b) => b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));
    // A list that is as it was keeps the focus that is in it.
    const drawn = JSON.stringify(sorted.slice(0, GROUPS_SHOWN).map(([why, pods]) => [why, pods.length, pods.slice(0, PODS_SHOWN)]));
    if (drawn !== this.drawn) {
      this.drawn = drawn;
      const focused = document.activeElement?.dataset?.name;
      const shown = sorted.slice(0, GROUPS_SHOWN).map(([why, pods]) => this.group(model, why, pods));
      if (sorted.length === 0) shown.push(h("p", { class: "sub" }, "None."));
      if (sorted.length > GROUPS_SHOWN) shown.push(h("p", { class: "more" }, `and ${count(sorted.length - GROUPS_SHOWN, "other reason")}`));
      byId("waiting-groups").replaceChildren(...shown);
      if (focused) [...byId("waiting-groups").querySelectorAll("button")].find((one) => one.dataset.name === focused)?.focus({ preventScroll: true });
    }
    for (const age of byId("waiting-groups").querySelectorAll("[data-since]")) {
      const since = Number(age.dataset.since);
      const seconds = Math.floor((now - since) / 1000);
      const text = since > 0 && seconds > 0 ? `for ${duration(seconds * 1000)}` : "";
      if (age.textContent !== text) age.textContent = text;
    }
  }

  group(model, why, pods) {
    const names = pods.sort().slice(0, PODS_SHOWN).map((name) => h("li", {}, h("button", { class: "pod stuck", type: "button", "data-kind": "pods", "data-name": name, onclick: () => this.open("pods", name) }, name)));
    if (pods.length > PODS_SHOWN) names.push(h("li", { class: "more" }, `and ${count(pods.length - PODS_SHOWN, "pod")} more`));
    const since = Math.min(...pods.map((name) => Date.parse(model.pods.get(name).created) || Infinity));
    return h("div", { class: "group" }, h("p", {}, h("b", {}, count(pods.length, "pod")), " ", h("span", { class: "names", "data-since": Number.isFinite(since) ? since : 0 })), h("ul", { class: "pods" }, ...names), h("p", {}, why));
  }
}
