// Puts the parts of the page together: one model of now, perhaps one of the past, and everything that draws them.

import { Details } from "./details.js";
import { byId, h, say } from "./dom.js";
import { ask, follow, setToken, takeToken } from "./feed.js";
import { Flow } from "./flow.js";
import { ago, bytes, clock, count, cpu, percent } from "./format.js";
import { Topology } from "./map.js";
import { Model } from "./model.js";
import { sumUp } from "./sums.js";
import { Timeline } from "./timeline.js";
import { Waiting } from "./waiting.js";
import { WhatIf } from "./whatif.js";

// Old data is told of when it is older than a few signs of life.
const OLD_MS = 8000;
// Sums over a large cluster are worked out this often at most.
const SUMS_MS = 500;
const LARGE = 5000;

let live = new Model();
let past;
let pastAt;
let standing = { complete: false, failing: [] };
let cluster = "";
let heardAt;
let lost = false;
let scheduled = false;
// When sums were last worked out, and whether they will be.
let summed;
let sumsDue;

const open = (kind, name) => details.open(kind, name);
const map = new Topology(open);
const details = new Details(map, { ask, now: () => (past ? pastAt : Date.now()), isPast: () => Boolean(past) });
const flow = new Flow(open, map);
const waiting = new Waiting(open);
const whatIf = new WhatIf(() => live, map);
const timeline = new Timeline({
  past: () => ask("history"),
  clock,
  end: { button: "Live", words: "now", standing: "" },
  show: (model, at, tick) => {
    // What goes backwards, or jumps to now, begins anew.
    if (past !== model) flow.clear();
    past = model;
    pastAt = at;
    // What would change is about now.
    if (past) whatIf.unmark();
    if (tick) flow.hear(tick.moments);
    document.body.classList.toggle("past", Boolean(past));
    summed = undefined;
    draw();
  },
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
  flow.draw(model, past ? pastAt : Date.now());
  details.draw(model);
  drawSumsSoon(model);
  drawStanding();
};

const drawSumsSoon = (model) => {
  const wait = summed === undefined || model.pods.size + model.nodes.size < LARGE ? 0 : summed + SUMS_MS - Date.now();
  if (wait > 0) {
    sumsDue ??= setTimeout(drawSums, wait);
    return;
  }
  drawSums();
};

const drawSums = () => {
  clearTimeout(sumsDue);
  sumsDue = undefined;
  summed = Date.now();
  const model = past ?? live;
  const sums = sumUp(model);
  map.drawSums(sums);
  drawFigures(model, sums.total);
};

// A figure with its bar, made once.
const figures = new Map();
const figure = (name, value, small, share) => {
  if (!figures.has(name)) {
    const [big, line, filled] = [h("span"), h("small", { class: "line" }), h("i")];
    byId("figures").append(h("div", {}, h("dt", {}, name), h("dd", {}, big, " ", line), h("dd", { class: "bar", "aria-hidden": "true" }, filled)));
    figures.set(name, { big, line, filled });
  }
  const { big, line, filled } = figures.get(name);
  say(big, value);
  say(line, small);
  filled.style.width = `${Math.min(100, share).toFixed(1)}%`;
};

const drawFigures = (model, sum) => {
  figure("Pods placed", String(model.placed), `of ${model.pods.size}`, percent(model.placed, model.pods.size));
  figure("Claims bound", String(model.bound), `of ${model.claims.size}`, percent(model.bound, model.claims.size));
  figure("Nodes ready", String(sum.ready), `of ${model.nodes.size}`, percent(sum.ready, model.nodes.size));
  figure("CPU requested", `${Math.round(percent(...sum.cpu))}%`, `${cpu(sum.cpu[0])} of ${cpu(sum.cpu[1])}`, percent(...sum.cpu));
  figure("Memory requested", `${Math.round(percent(...sum.memory))}%`, `${bytes(sum.memory[0])} of ${bytes(sum.memory[1])}`, percent(...sum.memory));
  figure("Free volumes", String(sum.freeVolumes), `of ${model.volumes.size}, ${bytes(sum.free)}`, percent(sum.freeVolumes, model.volumes.size));
  const [pending, idle] = [model.waiting.size, model.notRunning()];
  const ills = [pending > 0 ? `${count(pending, "pod")} pending` : "", idle > 0 ? `${pending > 0 ? idle : count(idle, "pod")} not running` : ""].filter(Boolean);
  const verdict = ills.join(", ") || "Every pod runs";
  const known = standing.complete || past;
  say(byId("verdict"), known ? verdict : "Reading the cluster");
  byId("verdict").className = known ? (ills.length === 0 ? "good" : "bad") : "";
  const title = [known ? verdict : "", past ? `at ${clock(pastAt)}` : "", cluster, "Berth"].filter(Boolean).join(" · ");
  if (document.title !== title) document.title = title;
};

// How current is what is shown.
const drawStanding = () => {
  const element = byId("connection");
  const age = heardAt === undefined ? undefined : Date.now() - heardAt;
  const failing = standing.failing ?? [];
  // A kind that was never read is a gap; one that was read before is old.
  const cut = standing.complete ? failing.filter((one) => !one.denied) : [];
  // A state is read out when it begins; how old data is changes every second.
  let [text, state, spoken] = ["Live", "good"];
  if (!byId("token-form").hidden) [text, state] = ["No token", ""];
  else if (past) [text, state, spoken] = [`Showing ${clock(pastAt)}`, "old", "Showing the past"];
  else if (lost || (age !== undefined && age > OLD_MS)) [text, state, spoken] = [age === undefined ? "Cannot reach berth, trying again" : `Showing data from ${ago(age)}, reconnecting`, "bad", "Connection lost, reconnecting"];
  else if (heardAt === undefined) [text, state] = ["Connecting", ""];
  else if (cut.length > 0) [text, state, spoken] = [`Showing data from ${ago(Math.max(...cut.map((one) => one.seconds)) * 1000)}: the cluster does not answer (${cut[0].kind})`, "bad", "The cluster does not answer"];
  else if (!standing.complete) [text, state] = ["Reading the cluster", ""];
  say(element, text);
  say(byId("spoken"), spoken ?? text);
  element.className = state;
  const shownAt = past ? pastAt : heardAt;
  say(byId("shown-at"), shownAt === undefined ? "" : `at ${clock(shownAt)}`);
  const gaps = failing.filter((one) => one.denied).map((one) => `${one.kind}: ${one.problem}`);
  byId("gaps").hidden = gaps.length === 0;
  if (byId("gaps").childElementCount !== gaps.length) byId("gaps").replaceChildren(...gaps.map((gap) => h("li", {}, gap)));
};

const told = (event, data) => {
  if (event === "lost") {
    lost = true;
    return schedule();
  }
  if (event === "denied") return askToken("The token does not belong to this server. Open the address that berth printed, or paste its token.");
  lost = false;
  heardAt = Date.now();
  if (event === "everything") {
    live = new Model(data.state);
    summed = undefined;
    if (!past) flow.clear();
    standing = data;
    cluster = data.cluster.context ?? data.cluster.server;
    say(byId("cluster"), [...new Set([cluster, data.cluster.server])].join(" · "));
    timeline.begin(data.ticks, data.recent);
  }
  // What changed before the page was opened is no news: it only has to be applied.
  if (event === "update" || event === "since") {
    live.apply(data.update);
    timeline.hear(data);
    if (event === "update" && !past) flow.hear(data.moments);
  }
  if (event === "standing") {
    // The past begins when all is known.
    if (data.complete && !standing.complete) timeline.begin(0, []);
    standing = data;
  }
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
  if (!past) flow.draw(live, Date.now());
  drawStanding();
}, 1000);

map.show(live);
if (takeToken()) follow(told);
else askToken("This page needs the token of the address that berth printed. Open that address, or paste the part after #.");
