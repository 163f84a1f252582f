// Usage: node load.mjs PAGE BROWSERS SECONDS. Opens so many pages, each in a session of its own, says so in a line, and after the time what they took.
import { browser, isLive } from "./page.mjs";

const [address, browsers, seconds] = process.argv.slice(2);
const metrics = async ({ session }) => Object.fromEntries((await session.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]));
const pages = [];
for (let number = 0; number < Number(browsers); number++) {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
  page.setDefaultTimeout(600_000);
  await page.goto(address);
  await isLive(page);
  await page.locator(".fold, .node").first().waitFor();
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  pages.push({ page, session });
}
console.log("open");
const before = await Promise.all(pages.map(metrics));
await new Promise((done) => setTimeout(done, Number(seconds) * 1000));
const after = await Promise.all(pages.map(metrics));
const busy = after.map((now, index) => ((now.TaskDuration - before[index].TaskDuration) / (now.Timestamp - before[index].Timestamp)) * 100);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const live = await Promise.all(pages.map(({ page }) => page.locator("#connection").innerText()));
const drawn = await pages[0].page.locator(".fold, .node").count();
const heap = mean(after.map((now) => now.JSHeapUsedSize)) / 2 ** 20;
console.log(`${pages.length} pages, ${live.filter((text) => text === "Live").length} of them live: ${mean(busy).toFixed(0)}% of a processor each (at most ${Math.max(...busy).toFixed(0)}%), ${heap.toFixed(0)} MiB of JavaScript objects, ${drawn} nodes and folded racks drawn, ${after[0].Nodes} nodes of the document`);
await browser.close();
