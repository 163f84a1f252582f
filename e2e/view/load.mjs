// Usage: node load.mjs PAGE SECONDS. Opens a page, says so in a line, and after the time what it took.
import { browser, isLive } from "./page.mjs";

const [address, seconds] = process.argv.slice(2);
const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
page.setDefaultTimeout(600_000);
await page.goto(address);
await isLive(page);
await page.locator(".node").first().waitFor();
console.log("open");
const session = await page.context().newCDPSession(page);
await session.send("Performance.enable");
const metrics = async () => Object.fromEntries((await session.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]));
const before = await metrics();
await new Promise((done) => setTimeout(done, Number(seconds) * 1000));
const after = await metrics();
const busy = ((after.TaskDuration - before.TaskDuration) / (after.Timestamp - before.Timestamp)) * 100;
const drawn = await page.locator(".node").count();
console.log(`page: ${busy.toFixed(0)}% of a processor, ${(after.JSHeapUsedSize / 2 ** 20).toFixed(0)} MiB of JavaScript, ${drawn} nodes drawn, ${after.Nodes} nodes of the document`);
await browser.close();
