// Time: what happened, and the cluster as it was at any moment of that: since a server started watching, or in a scenario of a simulation.

import { byId, h, say, svg } from "./dom.js";
import { count, duration } from "./format.js";
import { Model } from "./model.js";

const MOMENTS_SHOWN = 200;
const MOMENTS_KEPT = 2000;
const BARS = 40;
const PLAY_MS = 250;
// However long the past is, playing it takes half a minute at most.
const PLAY_TURNS = 120;
const DRAW_MS = 500;

const WORDS = {
  podWaits: (moment) => `${moment.pod} is pending`,
  podPlaced: (moment) => `${moment.pod} is placed on ${moment.node}${moment.waited === undefined ? "" : ` after ${duration(moment.waited)}`}`,
  podFailed: (moment) => `${moment.pod} failed${moment.node ? ` on ${moment.node}` : ""}`,
  podGone: (moment) => `${moment.pod} deleted${moment.node ? ` from ${moment.node}` : ""}`,
  nodeSelected: (moment) => `${moment.node} is selected for the volume of ${moment.claim}`,
  claimBound: (moment) => `${moment.claim} is bound to ${moment.volume}`,
  volumeMade: (moment) => `volume ${moment.volume} created`,
  volumeGone: (moment) => `volume ${moment.volume} deleted`,
  nodeAdded: (moment) => `node ${moment.node} added`,
  nodeGone: (moment) => `node ${moment.node} removed`,
  nodeReady: (moment) => `node ${moment.node} is ${moment.ready ? "ready" : "not ready"}`,
  nodeCordoned: (moment) => `node ${moment.node} is ${moment.cordoned ? "cordoned" : "uncordoned"}`,
};

const BAD = new Set(["podFailed", "nodeGone"]);
const isBad = (moment) => BAD.has(moment.what) || moment.ready === false;

const momentsOf = (tick) => tick.moments.map((moment) => ({ ...moment, at: tick.at, number: tick.number }));

export class Timeline {
  // `past` promises everything that is kept: where it begins, its ticks and perhaps steps; it is asked when somebody wants to see it. `show` is
  // given the model of a moment, its time and its tick; nothing for the end. `clock` says a time, and `end` is what the end is called: on a button, as a time, and as a sentence.
  constructor({ past, show, clock, end }) {
    Object.assign(this, { load: past, show, clock, end });
    this.moments = [];
    this.length = 0;
    this.build();
    this.slider.addEventListener("input", () => this.goTo(Number(this.slider.value)));
    this.slider.addEventListener("keydown", (event) => this.key(event));
    byId("live").addEventListener("click", () => this.goLive());
    byId("play").addEventListener("click", () => this.play());
    byId("moments").addEventListener("click", (event) => {
      const number = event.target.dataset?.number;
      if (number) this.goToNumber(Number(number));
    });
  }

  build() {
    const plot = (id, name, value) => h("figure", {}, h("figcaption", {}, `${name} `, h("b", { id: value })), svg("svg", { id, viewBox: "0 0 240 36", preserveAspectRatio: "none", "aria-hidden": "true" }));
    this.slider = h("input", { id: "moment", type: "range", min: 0, max: 0, value: 0, step: 1 });
    this.stops = h("div", { class: "stops", role: "group", "aria-label": "Steps of the scenario", hidden: true });
    byId("timeline").replaceChildren(
      h("div", { class: "scrub" }, h("button", { id: "play", class: "act", type: "button" }, "Play"), h("label", { class: "track" }, h("span", { class: "hidden" }, "Moment to show"), this.slider), h("output", { id: "moment-at", for: "moment" }, this.end.words), h("button", { id: "live", class: "act", type: "button", "aria-pressed": "true" }, this.end.button)),
      this.stops,
      h("p", { id: "standing", class: "sub", role: "status" }, this.end.standing),
    );
    byId("happened").replaceChildren(
      h("div", { class: "plots" }, plot("plot-placed", "Pods placed", "placed-count"), plot("plot-latency", "Time until a node was found", "latency")),
      h("ol", { id: "moments", tabindex: 0, "aria-label": "What happened, the latest first" }),
    );
  }

  // Begins with how many ticks there are, the last of them with what happened, and the steps of a scenario.
  begin(length, recent, steps = []) {
    this.length = length;
    this.moments = recent.flatMap(momentsOf);
    this.newest = undefined;
    this.buildStops(steps);
    if (!this.past) this.draw();
  }

  // A button for each step of a scenario.
  buildStops(steps) {
    this.stops.hidden = steps.length === 0;
    const stop = ({ at, name }, index) => h("button", { class: "act", type: "button", "aria-pressed": "false", onclick: () => this.goToStep(index) }, h("b", {}, at), ` ${name}`);
    this.stops.replaceChildren(...steps.map(stop));
  }

  hear(tick) {
    this.length++;
    this.moments.push(...momentsOf(tick));
    if (this.moments.length > MOMENTS_KEPT) this.moments.splice(0, this.moments.length - MOMENTS_KEPT);
    this.drawSoon();
  }

  // A busy cluster changes several times a second, and all lines and plots are drawn anew: twice a second is enough to follow them.
  drawSoon() {
    this.due ??= setTimeout(() => {
      this.due = undefined;
      if (!this.past) this.draw();
    }, DRAW_MS);
  }

  // Fetches all of the past, to be looked at moment by moment.
  async fetchPast() {
    if (!this.past) {
      say(byId("standing"), "Loading the past …");
      const past = await this.load().catch(() => null);
      say(byId("standing"), past ? "" : "The past cannot be loaded. Try again.");
      this.past = past;
    }
    if (!this.past) return false;
    this.slider.max = String(this.past.ticks.length);
    return true;
  }

  async goTo(index) {
    if (!(await this.fetchPast())) return;
    const { base, begin, ticks } = this.past;
    const at = Math.min(index, ticks.length);
    // Forwards from where it is, backwards from the beginning.
    if (!this.model || this.index > at) [this.model, this.index] = [new Model(base), 0];
    for (; this.index < at; this.index++) this.model.apply(ticks[this.index].update);
    const tick = ticks[at - 1];
    const time = tick?.at ?? begin;
    const step = this.stepAt(at);
    this.slider.value = String(at);
    this.slider.setAttribute("aria-valuetext", step === undefined ? this.clock(time) : `${this.clock(time)}, ${this.past.steps[step].name}`);
    byId("live").setAttribute("aria-pressed", "false");
    [...this.stops.children].forEach((stop, index) => stop.setAttribute("aria-pressed", String(index === step)));
    say(byId("moment-at"), this.clock(time));
    say(byId("standing"), this.standing(time, step));
    this.list(this.before(at));
    this.show(this.model, time, tick);
  }

  // How the cluster stands at a moment.
  standing(time, step) {
    const { placed, pods, waiting, bound, claims, nodes } = this.model;
    const ready = [...nodes.values()].filter((row) => row.ready).length;
    const during = step === undefined ? "" : ` (${this.past.steps[step].name})`;
    return `${this.clock(time)}${during}: ${placed} of ${count(pods.size, "pod")} on a node, ${waiting.size} pending; ${bound} of ${count(claims.size, "claim")} bound; ${ready} of ${count(nodes.size, "node")} ready.`;
  }

  // The latest moments of so many ticks.
  before(ticks) {
    const found = [];
    for (let index = ticks - 1; index >= 0 && found.length < MOMENTS_SHOWN; index--) found.unshift(...momentsOf(this.past.ticks[index]));
    return found;
  }

  // After how many ticks a step is over. Those before the history begins are over from the beginning.
  endOf(step) {
    return this.past.ticks.filter((tick) => tick.number <= step.last).length;
  }

  // The step that a moment belongs to.
  stepAt(ticks) {
    const step = (this.past.steps ?? []).findIndex((step) => ticks <= this.endOf(step));
    return step < 0 ? undefined : step;
  }

  async goToStep(index) {
    this.stop();
    if ((await this.fetchPast()) && this.past.steps[index]) await this.goTo(this.endOf(this.past.steps[index]));
  }

  async goToNumber(number) {
    this.stop();
    if (!(await this.fetchPast())) return;
    const index = this.past.ticks.findIndex((tick) => tick.number === number);
    if (index >= 0) await this.goTo(index + 1);
  }

  // Page Up and Page Down go from step to step, as arrows go from moment to moment.
  async key(event) {
    const turn = { PageUp: -1, PageDown: 1 }[event.key];
    if (!turn || this.stops.hidden) return;
    event.preventDefault();
    if (!(await this.fetchPast())) return;
    const ends = this.past.steps.map((step) => this.endOf(step));
    const now = this.index ?? this.past.ticks.length;
    const next = turn > 0 ? ends.findIndex((end) => end > now) : ends.findLastIndex((end) => end < now);
    if (next >= 0) await this.goToStep(next);
  }

  async play() {
    if (this.playing) return this.stop();
    if (!(await this.fetchPast())) return;
    const length = this.past.ticks.length;
    const turn = Math.max(1, Math.ceil(length / PLAY_TURNS));
    byId("play").textContent = "Pause";
    if (Number(this.slider.value) >= length) await this.goTo(0);
    this.playing = setInterval(() => {
      if (this.index >= length) this.goLive();
      else this.goTo(this.index + turn);
    }, PLAY_MS);
  }

  stop() {
    clearInterval(this.playing);
    this.playing = undefined;
    byId("play").textContent = "Play";
  }

  goLive() {
    this.stop();
    [this.past, this.model, this.index] = [undefined, undefined, undefined];
    byId("live").setAttribute("aria-pressed", "true");
    for (const stop of this.stops.children) stop.setAttribute("aria-pressed", "false");
    say(byId("moment-at"), this.end.words);
    say(byId("standing"), this.end.standing);
    this.slider.setAttribute("aria-valuetext", this.end.words);
    this.draw();
    this.show(undefined);
  }

  draw() {
    this.slider.max = String(this.length);
    if (!this.past) this.slider.value = this.slider.max;
    this.list(this.moments.slice(-MOMENTS_SHOWN));
    this.plot();
  }

  // Lists moments, the latest first. Those of the last tick are what a moment of the past shows.
  list(moments) {
    const list = byId("moments");
    const known = this.past || !this.newest ? -1 : moments.lastIndexOf(this.newest);
    const last = this.past && moments.at(-1)?.number;
    const item = (moment) => h("li", { class: [isBad(moment) ? "bad" : "", moment.number === last ? "now" : ""].filter(Boolean).join(" ") }, h("time", {}, this.clock(moment.at)), h("button", { class: "link", type: "button", "data-number": moment.number, title: "Show the cluster at that moment" }, WORDS[moment.what]?.(moment) ?? moment.what));
    if (known >= 0) {
      // Only what is new is drawn: a busy cluster has much of it.
      list.prepend(...moments.slice(known + 1).reverse().map(item));
      while (list.childElementCount > MOMENTS_SHOWN) list.lastElementChild.remove();
    } else {
      const nothing = h("li", { class: "more" }, this.past ? "Nothing has happened yet." : "Nothing has happened since berth started watching.");
      list.replaceChildren(...(moments.length > 0 ? [...moments].reverse().map(item) : [nothing]));
    }
    this.newest = this.past ? undefined : moments.at(-1);
  }

  // Placements and their latency over the time of all that is listed.
  plot() {
    const placed = this.moments.filter((moment) => moment.what === "podPlaced");
    const waited = placed.filter((moment) => moment.waited !== undefined);
    say(byId("placed-count"), placed.length > 0 ? String(placed.length) : "none yet");
    const sorted = waited.map((moment) => moment.waited).sort((a, b) => a - b);
    const at = (part) => duration(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]);
    // In a simulation that finds every node at once there is nothing to plot.
    byId("plot-latency").closest("figure").hidden = sorted.length > 0 && sorted.at(-1) === 0;
    say(byId("latency"), sorted.length > 0 ? `median ${at(0.5)}, 99% ${at(0.99)}` : "none yet");
    const begin = this.moments[0]?.at ?? 0;
    const span = Math.max(1000, (this.moments.at(-1)?.at ?? 0) - begin);
    const slot = (moment) => Math.min(BARS - 1, Math.floor(((moment.at - begin) / span) * BARS));
    const counts = new Array(BARS).fill(0);
    for (const moment of placed) counts[slot(moment)]++;
    const worst = new Array(BARS).fill(0);
    for (const moment of waited) worst[slot(moment)] = Math.max(worst[slot(moment)], moment.waited);
    this.bars(byId("plot-placed"), counts);
    this.bars(byId("plot-latency"), worst);
  }

  bars(element, values) {
    const [most, width] = [Math.max(1, ...values), 240 / BARS];
    while (element.childElementCount < values.length) element.append(svg("rect", { x: (element.childElementCount * width).toFixed(1), width: (width - 1).toFixed(1) }));
    values.forEach((value, index) => {
      const height = (value > 0 ? Math.max(2, (value / most) * 34) : 0).toFixed(1);
      const bar = element.children[index];
      if (bar.getAttribute("height") === height) return;
      bar.setAttribute("y", (36 - Number(height)).toFixed(1));
      bar.setAttribute("height", height);
    });
  }
}
