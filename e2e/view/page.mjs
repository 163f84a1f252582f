// Opens pages of clusters in a real browser, as a person would, and counts what holds. What a suite looks at is its own.
import { chromium } from "playwright-core";
import { execFileSync } from "node:child_process";
import { join } from "node:path";

// Whatever must happen happens within this time, on a slow machine too.
const DEADLINE = 60_000;
let passed = 0;
let failed = 0;
export const check = (name, holds, found = "") => {
  if (holds) passed++;
  else {
    failed++;
    console.log(`FAILED ${name}${found === "" ? "" : `: ${found}`}`);
  }
};
export const kubectl = (...words) => execFileSync(process.env.KUBECTL, words, { stdio: ["ignore", "pipe", "pipe"] }).toString();
export const picture = (page, name, fullPage = true) => page.screenshot({ path: join(process.env.PICTURES, `${name}.png`), fullPage });

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

// Opens a page and hands it to `look`, then checks what no page may do.
export const open = async (name, url, options, look) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(DEADLINE);
  const page = await context.newPage();
  const problems = [];
  // While it is offline the browser itself reports each request that fails.
  const isOffline = (message) => message.text().includes("net::ERR_INTERNET_DISCONNECTED");
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && !isOffline(message) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  const origin = new URL(url).origin;
  page.on("request", (request) => !request.url().startsWith(origin) && !request.url().startsWith("data:") && problems.push(`request ${request.url()}`));
  await page.goto(url);
  try {
    await look(page);
  } catch (error) {
    check(name, false, String(error));
    await picture(page, `${name.replaceAll(" ", "-")}-failed`);
  }
  check(`${name}: no errors, and no requests elsewhere`, problems.length === 0, problems.join("; "));
  await context.close();
};
export const says = (page, selector, text) => page.waitForFunction(([where, what]) => document.querySelector(where)?.textContent.includes(what), [selector, text]);
export const isLive = (page) => says(page, "#connection", "Live");
export const node = (page, name) => page.locator(".node", { has: page.locator(`button[data-kind="nodes"][data-name="${name}"]`) });
export const pod = (page, name) => page.locator(`#zones button[data-kind="pods"][data-name="${name}"]`);

// As when a laptop loses its network: the page says how old its data is, keeps showing it, and comes back by itself.
export const goOffline = async (page, nodes) => {
  await page.context().setOffline(true);
  await says(page, "#connection", "reconnecting");
  check("offline, old data is told of", /Showing data from (\d+|a moment)/.test(await page.locator("#connection").innerText()), await page.locator("#connection").innerText());
  check("and still shown", (await page.locator(".node").count()) === nodes);
  // What is read out does not change with the age of the data.
  const spoken = await page.locator("#spoken").innerText();
  await page.waitForFunction((before) => document.querySelector("#connection").textContent !== before, await page.locator("#connection").innerText());
  check("and is not read out every second", (await page.locator("#spoken").innerText()) === spoken && spoken === "Connection lost, reconnecting", spoken);
  await page.context().setOffline(false);
  await isLive(page);
};

// Nothing is wider than the window, with and without the panel.
export const fits = async (page, name, width) => {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check(`${name} fits a window of ${width} pixels`, wide <= width, wide);
  await page.locator('.node button[data-kind="nodes"]').first().click();
  await says(page, "#panel-title", "Node node-a");
  const opened = await page.evaluate(() => document.documentElement.scrollWidth);
  check(`and so does its panel at ${width} pixels`, opened <= width, opened);
};

// Presses Tab until what has the focus is what is looked for.
export const tabTo = async (page, selector, most = 200) => {
  for (let turn = 0; turn < most; turn++) {
    await page.keyboard.press("Tab");
    if (await page.evaluate((wanted) => document.activeElement.matches(wanted), selector)) return true;
  }
  return false;
};

// Without a mouse: from a pending pod to why, and back to it.
export const walk = async (page, name) => {
  await page.evaluate(() => document.activeElement?.blur());
  check("a pending pod is reached with Tab alone", await tabTo(page, `#waiting button[data-name="${name}"]`));
  await page.keyboard.press("Enter");
  await says(page, "#panel", "What would help");
  check("the panel has the focus", await page.evaluate(() => document.activeElement.id === "panel"));
  check("and its parts are next", await tabTo(page, "#panel button", 1));
  await page.keyboard.press("Escape");
  check("Escape leads back to the pod", (await page.evaluate(() => document.activeElement.dataset.name)) === name);
};

// Says how many checks held, and ends.
export const finish = async () => {
  await browser.close();
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
};
