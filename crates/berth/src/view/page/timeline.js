// Time: what happened since the server looks, and the cluster as it was at any moment of that.

import { byId, h, say, svg } from "./dom.js";
import { ask } from "./feed.js";
import { clock, duration } from "./format.js";
import { Model } from "./model.js";

const MOMENTS_SHOWN = 200;
const MOMENTS_KEPT = 2000;
const BARS = 40;
const PLAY_MS = 250;
const DRAW_MS = 500;

const WORDS = {
  podWaits: (moment) => `${moment.pod} waits for a node`,
  podPlaced: (moment) => `${moment.pod} is placed on ${moment.node}${moment.waited === undefined ? "" : ` after ${duration(moment.waited)}`}`,
  podFailed: (moment) => `${moment.pod} failed${moment.node ? ` on ${moment.node}` : ""}`,
  podGone: (moment) => `${moment.pod} is gone${moment.node ? ` from ${moment.node}` : ""}`,
  nodeSelected: (moment) => `${moment.node} is selected for the volume of ${moment.claim}`,
  claimBound: (moment) => `${moment.claim} is bound to ${moment.volume}`,
  volumeMade: (moment) => `volume ${moment.volume} is made`,
  volumeGone: (moment) => `volume ${moment.volume} is gone`,
  nodeAdded: (moment) => `node ${moment.node} came`,
  nodeGone: (moment) => `node ${moment.node} is gone`,
  nodeReady: (moment) => `node ${moment.node} is ${moment.ready ? "ready" : "not ready"}`,
  nodeCordoned: (moment) => `node ${moment.node} is ${moment.cordoned ? "cordoned" : "uncordoned"}`,
};

const BAD = new Set(["podFailed", "nodeGone"]);
const isBad = (moment) => BAD.has(moment.what) || moment.ready === false;

export class Timeline {
  // `show` is given the model of a moment of the past, or nothing for now.
  constructor(show) {
    this.show = show;
    this.moments = [];
    this.slider = byId("moment");
    this.slider.addEventListener("input", () => this.goTo(Number(this.slider.value)));
    byId("live").addEventListener("click", () => this.goLive());
    byId("play").addEventListener("click", () => this.play());
    byId("moments").addEventListener("click", (event) => {
      const number = event.target.dataset?.number;
      if (number) this.goToNumber(Number(number));
    });
  }

  // What the server knows of the time before this page was opened.
  async begin() {
    const past = await ask("history").catch(() => null);
    this.moments = past ? past.ticks.flatMap((tick) => tick.moments.map((moment) => ({ ...moment, at: tick.at, number: tick.number }))) : [];
    this.length = past ? past.ticks.length : 0;
    this.draw();
  }

  hear(tick) {
    this.length = (this.length ?? 0) + 1;
    for (const moment of tick.moments) this.moments.push({ ...moment, at: tick.at, number: tick.number });
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
    if (this.past) return true;
    this.past = await ask("history").catch(() => null);
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
    this.slider.value = String(at);
    const time = at === 0 ? begin : ticks[at - 1].at;
    byId("live").setAttribute("aria-pressed", "false");
    say(byId("moment-at"), clock(time));
    this.show(this.model, time);
  }

  async goToNumber(number) {
    this.stop();
    if (!(await this.fetchPast())) return;
    const index = this.past.ticks.findIndex((tick) => tick.number === number);
    if (index >= 0) await this.goTo(index + 1);
  }

  async play() {
    if (this.playing) return this.stop();
    if (!(await this.fetchPast())) return;
    byId("play").textContent = "Pause";
    if (Number(this.slider.value) >= this.past.ticks.length) await this.goTo(0);
    this.playing = setInterval(() => {
      if (this.index >= this.past.ticks.length) this.goLive();
      else this.goTo(this.index + 1);
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
    say(byId("moment-at"), "now");
    this.draw();
    this.show(undefined);
  }

  draw() {
    this.slider.max = String(this.length ?? 0);
    if (!this.past) this.slider.value = this.slider.max;
    const latest = this.moments.slice(-MOMENTS_SHOWN).reverse();
    const items = latest.map((moment) => h("li", { class: isBad(moment) ? "bad" : "" }, h("time", {}, clock(moment.at)), h("button", { class: "link", type: "button", "data-number": moment.number, title: "Show the cluster at that moment" }, WORDS[moment.what]?.(moment) ?? moment.what)));
    byId("moments").replaceChildren(...(items.length > 0 ? items : [h("li", { class: "more" }, "Nothing has happened since berth looks.")]));
    this.plot();
  }

  // Placements and their latency over the time of all that is listed.
  plot() {
    const placed = this.moments.filter((moment) => moment.what === "podPlaced");
    const waited = placed.filter((moment) => moment.waited !== undefined);
    say(byId("placed-count"), placed.length > 0 ? String(placed.length) : "none yet");
    const sorted = waited.map((moment) => moment.waited).sort((a, b) => a - b);
    const at = (part) => duration(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]);
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
    const bars = values.map((value, index) => {
      const height = value > 0 ? Math.max(2, (value / most) * 34) : 0;
      return svg("rect", { x: (index * width).toFixed(1), y: (36 - height).toFixed(1), width: (width - 1).toFixed(1), height: height.toFixed(1) });
    });
    element.replaceChildren(...bars);
  }
}
