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
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
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

// Says how many checks held, and ends.
export const finish = async () => {
  await browser.close();
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
};
