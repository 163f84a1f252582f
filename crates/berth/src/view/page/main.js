// Puts the parts of the page together: one model of now, perhaps one of the past, and everything that draws them.

import { Details } from "./details.js";
import { byId, h, say } from "./dom.js";
import { follow, setToken, takeToken } from "./feed.js";
import { ago, bytes, clock, count, cpu, percent } from "./format.js";
import { Topology } from "./map.js";
import { Model } from "./model.js";
import { Timeline } from "./timeline.js";
import { Waiting } from "./waiting.js";
import { WhatIf } from "./whatif.js";

// Old data is told of when it is older than a few signs of life.
const OLD_MS = 8000;

let live = new Model();
let past;
let pastAt;
let standing = { complete: false, failing: [] };
let heardAt;
let lost = false;
let scheduled = false;

const open = (kind, name) => details.open(kind, name);
const map = new Topology(open);
const details = new Details(map);
const waiting = new Waiting(open);
new WhatIf(() => live);
const timeline = new Timeline((model, at) => {
  past = model;
  pastAt = at;
  document.body.classList.toggle("past", Boolean(past));
  map.show(past ?? live);
  draw();
});
details.model = live;

// Changes that come together are drawn together, when the browser draws anyway.
const schedule = () => {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    draw();
  });
};

const draw = () => {
  const model = past ?? live;
  if (map.model !== model) map.show(model);
  else map.draw();
  waiting.draw(model, past ? pastAt : Date.now());
  details.draw(model);
  drawFigures(model);
  drawStanding();
};

const figure = (name, value, small, share) => {
  const filled = h("i");
  filled.style.width = `${Math.min(100, share).toFixed(1)}%`;
  return h("div", {}, h("dt", {}, name), h("dd", {}, value, " ", h("small", { class: "line" }, small)), h("dd", { class: "bar", "aria-hidden": "true" }, filled));
};

const drawFigures = (model) => {
  const sum = { cpu: [0, 0], memory: [0, 0], ready: 0, bound: 0, placed: 0 };
  for (const row of model.nodes.values()) {
    if (row.ready) sum.ready++;
    for (const what of ["cpu", "memory"]) {
      sum[what][0] += row[what].requested;
      sum[what][1] += row[what].allocatable;
    }
  }
  for (const row of model.claims.values()) if (row.phase === "Bound") sum.bound++;
  for (const row of model.pods.values()) if (row.node) sum.placed++;
  const free = [...model.volumes.values()].filter((row) => row.phase === "Available");
  const freeBytes = free.reduce((total, row) => total + row.capacity, 0);
  byId("figures").replaceChildren(
    figure("Pods placed", String(sum.placed), `of ${model.pods.size}`, percent(sum.placed, model.pods.size)),
    figure("Claims bound", String(sum.bound), `of ${model.claims.size}`, percent(sum.bound, model.claims.size)),
    figure("Nodes ready", String(sum.ready), `of ${model.nodes.size}`, percent(sum.ready, model.nodes.size)),
    figure("CPU requested", `${Math.round(percent(...sum.cpu))}%`, `${cpu(sum.cpu[0])} of ${cpu(sum.cpu[1])}`, percent(...sum.cpu)),
    figure("Memory requested", `${Math.round(percent(...sum.memory))}%`, `${bytes(sum.memory[0])} of ${bytes(sum.memory[1])}`, percent(...sum.memory)),
    figure("Free volumes", String(free.length), `of ${model.volumes.size}, ${bytes(freeBytes)}`, percent(free.length, model.volumes.size)),
  );
  const pending = model.waiting.size;
  const verdict = pending === 0 ? "Every pod has a node" : pending === 1 ? "1 pod waits for a node" : `${pending} pods wait for a node`;
  const known = standing.complete || past;
  say(byId("verdict"), known ? verdict : "Reading the cluster");
  byId("verdict").className = known ? (pending === 0 ? "good" : "bad") : "";
  document.title = known ? `Berth: ${verdict.toLowerCase()}` : "Berth";
};

// How current is what is shown.
const drawStanding = () => {
  const element = byId("connection");
  const age = heardAt === undefined ? undefined : Date.now() - heardAt;
  const failing = standing.failing ?? [];
  // A kind that was never read is a gap; one that was read before is old.
  const cut = standing.complete ? failing.filter((one) => !one.denied) : [];
  let [text, state] = ["Live", "good"];
  if (!byId("token-form").hidden) [text, state] = ["No token", ""];
  else if (past) [text, state] = [`Showing ${clock(pastAt)}`, "old"];
  else if (lost || (age !== undefined && age > OLD_MS)) [text, state] = [age === undefined ? "Cannot reach berth, trying again" : `Showing data from ${ago(age)}, reconnecting`, "bad"];
  else if (heardAt === undefined) [text, state] = ["Connecting", ""];
  else if (cut.length > 0) [text, state] = [`Showing data from ${ago(Math.max(...cut.map((one) => one.seconds)) * 1000)}: the cluster does not answer (${cut[0].kind})`, "bad"];
  else if (!standing.complete) [text, state] = ["Reading the cluster", ""];
  say(element, text);
  element.className = state;
  const gaps = failing.filter((one) => one.denied).map((one) => `${one.kind}: ${one.problem}`);
  byId("gaps").hidden = gaps.length === 0;
  if (byId("gaps").childElementCount !== gaps.length) byId("gaps").replaceChildren(...gaps.map((gap) => h("li", {}, gap)));
};

const told = (event, data) => {
  if (event === "lost") {
    lost = true;
    return schedule();
  }
  if (event === "denied") return askToken("The token is not the one of this server. Open the address that berth printed, or paste its token.");
  lost = false;
  heardAt = Date.now();
  if (event === "everything") {
    live = new Model(data.state);
    standing = data;
    timeline.begin();
  }
  if (event === "update") {
    live.apply(data.update);
    timeline.hear(data);
  }
  if (event === "standing") standing = data;
  schedule();
};

const askToken = (why) => {
  say(byId("token-why"), why);
  byId("token-form").hidden = false;
  drawStanding();
  byId("token").focus();
};

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("token-form").hidden = true;
  follow(told);
});

// Finds objects by a part of their names.
const FOUND = 20;
const search = () => {
  const wanted = byId("find").value.trim();
  const model = past ?? live;
  const kinds = ["pods", "nodes", "volumes", "claims"];
  const exact = wanted && kinds.find((kind) => model[kind].has(wanted));
  if (exact) return open(exact, wanted);
  const found = [];
  for (const kind of kinds) {
    for (const name of model[kind].keys()) {
      if (found.length >= FOUND) break;
      if (wanted.length > 1 && name.includes(wanted)) found.push(name);
    }
  }
  byId("found").replaceChildren(...found.map((name) => h("option", { value: name })));
};
byId("find").addEventListener("input", search);
byId("find").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  const first = byId("found").firstElementChild;
  if (first) {
    byId("find").value = first.value;
    search();
  }
});

// Ages go on while nothing changes.
setInterval(() => {
  waiting.draw(past ?? live, past ? pastAt : Date.now());
  drawStanding();
}, 1000);

map.show(live);
if (takeToken()) follow(told);
else askToken("This page needs the token of the address that berth printed. Open that address, or paste the part after #.");
