// Usage: node check.mjs PAGES PICTURES. Prints a line for each failed check, and `N passed, N failed`.
import { chromium } from "playwright-core";
import { contrast } from "./contrast.mjs";
import { statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [pages, pictures] = process.argv.slice(2);
let passed = 0;
let failed = 0;
const check = (name, holds, found = "") => {
  if (holds) passed++;
  else {
    failed++;
    console.log(`FAILED ${name}${found === "" ? "" : `: ${found}`}`);
  }
};

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

// Opens a page and passes it to `look`, then checks what no page may do.
const open = async (name, options, look) => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const address = pathToFileURL(join(pages, `${name}.html`)).href;
  const problems = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => request.url() !== address && !request.url().startsWith("data:") && problems.push(`request ${request.url()}`));
  await page.goto(address);
  await look(page);
  check(`${name}: no errors and no requests`, problems.length === 0, problems.join("; "));
  await context.close();
};
const text = (page, selector) => page.locator(selector).first().innerText();
const isShown = (page, selector) => page.locator(selector).first().isVisible();

await open("quickstart", {}, async (page) => {
  check("the verdict", (await text(page, "h1")) === "Every pod has a node", await text(page, "h1"));
  check("the title", (await page.title()) === "Berth: every pod has a node · quickstart.yaml", await page.title());
  check("every node is drawn", (await page.locator(".node").count()) === 6);
  check("every zone is drawn", (await page.locator(".zone").count()) === 3);
  check("local volumes are on their nodes", (await page.locator(".node .vol").count()) === 3, await page.locator(".node .vol").count());
  check("zonal volumes are in their zones", (await page.locator(".zone > .vols .vol").count()) === 3);
  const node = page.locator(".node", { hasText: "db-0" });
  const tip = node.locator(".tip");
  check("nothing is told at first", !(await tip.isVisible()));
  await node.hover();
  check("a node that is pointed at tells of itself", await tip.isVisible());
  check("of its pods", (await tip.innerText()).includes("default/db-0"), await tip.innerText());
  await page.mouse.move(0, 0);
  check("and no longer when it is not", !(await tip.isVisible()));
  await node.focus();
  check("a node that has the focus tells of itself", await tip.isVisible());
  await page.keyboard.press("Escape");
  check("until Escape", !(await tip.isVisible()));
  await page.locator("details.table summary").first().click();
  check("all pods are in a table", (await page.locator("details.table").first().locator("tbody tr").count()) === 3);
  await page.fill("#filter", "db-1");
  check("which can be filtered", (await page.locator("details.table").first().locator("tbody tr:visible").count()) === 1);
});

await open("lost", {}, async (page) => {
  check("the verdict on pending pods", (await text(page, "h1")) === "1 pod is pending", await text(page, "h1"));
  check("why", (await text(page, "#pending")).includes("didn't match PersistentVolume's node affinity"));
  check("steps", (await page.locator(".steps > li").count()) === 3);
  check("cordoned nodes are marked", (await page.locator(".node.cordoned").count()) === 1);
  check("silent nodes are marked", (await page.locator(".node.notready").count()) === 1);
  await page.click("button.show");
  const coloured = await page.locator(".node:is(.r0, .r1, .r2, .r3, .r4)").count();
  check("refusing nodes are coloured", coloured === 5, coloured);
  check("and the colours are explained", (await text(page, "#refusal-legend")).includes("Refusing default/db-2"));
  const node = page.locator(".node", { hasText: "node-b2" });
  await node.hover();
  check("a refusing node says why", (await node.locator(".tip").innerText()).includes("default/db-2: node(s) didn't match"), await node.locator(".tip").innerText());
  await page.screenshot({ path: join(pictures, "lost-light.png"), fullPage: true });
  await page.click("button.show");
  check("and back", (await page.locator(".node:is(.r0, .r1, .r2, .r3, .r4)").count()) === 0);
  const ids = await page.locator("[id]").evaluateAll((found) => found.map((element) => element.id));
  check("no name is given twice", new Set(ids).size === ids.length, ids.join(" "));
  const labels = await page.locator("main > section").evaluateAll((found) => found.every((one) => document.getElementById(one.getAttribute("aria-labelledby"))));
  check("every part has a name for those who do not see it", labels);
});

// The scenario, step by step: the map of a moment is drawn in place of that of the end.
const stepButton = (page, name) => page.locator("#timeline .stops button", { hasText: name });
const shownNodes = (page, state) => page.locator(`#zones .node${state}`).count();
await open("lost", {}, async (page) => {
  check("a scenario begins with its end", (await isShown(page, "#at-the-end")) && !(await isShown(page, "#at-a-moment")));
  check("there is a stop for each step", (await page.locator("#timeline .stops button").count()) === 3);
  await stepButton(page, "start").click();
  check("the start is shown", (await isShown(page, "#at-a-moment")) && !(await isShown(page, "#at-the-end")));
  check("all nodes are ready then", (await shownNodes(page, "")) === 6 && (await shownNodes(page, ".notready")) === 0, await shownNodes(page, ".notready"));
  check("all pods are placed then", (await page.locator("#zones button.pod").count()) === 6, await page.locator("#zones button.pod").count());
  check("and a sentence says so", (await text(page, "#standing")).includes("6 of 6 pods on a node, 0 pending"), await text(page, "#standing"));
  await stepButton(page, "zone-a goes dark").click();
  check("a lost zone is shown", (await shownNodes(page, ".notready")) === 2, await shownNodes(page, ".notready"));
  check("its step is marked", (await stepButton(page, "zone-a goes dark").getAttribute("aria-pressed")) === "true");
  await page.locator("#moment").focus();
  await page.keyboard.press("Home");
  check("before the first moment nothing is placed", (await page.locator("#zones button.pod").count()) === 0);
  check("and a sentence says so, too", (await text(page, "#standing")).includes("0 of"), await text(page, "#standing"));
  await page.keyboard.press("PageDown");
  check("Page Down goes to the next step", (await stepButton(page, "start").getAttribute("aria-pressed")) === "true");
  await page.keyboard.press("PageDown");
  check("and to the next", (await shownNodes(page, ".notready")) === 2);
  await page.keyboard.press("PageUp");
  check("Page Up goes back", (await shownNodes(page, ".notready")) === 0);
  await page.keyboard.press("ArrowRight");
  check("an arrow goes to the next moment", (await page.locator("#moment").getAttribute("aria-valuetext")).includes("zone-a goes dark"), await page.locator("#moment").getAttribute("aria-valuetext"));
  const pod = page.locator('#zones button[data-kind="pods"]').first();
  await pod.hover();
  check("volumes are tied to their pods", (await page.locator('#zones button[data-kind="volumes"].tied').count()) >= 1);
  await pod.click();
  check("a pod tells of itself", (await text(page, "#panel-title")).startsWith("Pod default/db-"));
  await page.keyboard.press("Escape");
  check("until Escape", !(await isShown(page, "#panel")));
  await page.click("#live");
  check("the end again", (await isShown(page, "#at-the-end")) && (await page.locator("#at-the-end .node.cordoned").count()) === 1);
  await page.locator("#moments button", { hasText: "node node-a1 removed" }).click();
  check("a moment of the list is shown", (await isShown(page, "#at-a-moment")) && (await shownNodes(page, "")) === 5, await shownNodes(page, ""));
  await page.click("button.show");
  check("refusals are those of the end", await isShown(page, "#at-the-end"));
  await page.locator("button.step").nth(1).click();
  check("a step of the list is shown", (await shownNodes(page, ".notready")) === 2);
  await page.screenshot({ path: join(pictures, "step.png") });
  await page.click("#live");
  await page.click("#play");
  await page.waitForFunction(() => document.querySelectorAll("#zones .node.notready").length === 2);
  await page.waitForFunction(() => document.getElementById("at-a-moment").hidden);
  check("playing ends at the end", (await text(page, "#play")) === "Play");
});

await open("quickstart", {}, async (page) => {
  check("without a scenario there is no timeline", (await page.locator("#timeline").count()) === 0);
});

await open("lost", { javaScriptEnabled: false }, async (page) => {
  const node = page.locator(".node").first();
  await node.hover();
  check("without script a node still tells of itself", await node.locator(".tip").isVisible());
  check("and what needs a script is not there", !(await isShown(page, "button.show")) && !(await isShown(page, ".filter")) && !(await isShown(page, "#timeline")) && !(await isShown(page, "button.step")));
  await page.click("#pending summary");
  check("reasons unfold", await isShown(page, ".reasons li"));
});

for (const colorScheme of ["light", "dark"]) {
  await open("lost", { colorScheme }, async (page) => {
    for (const selector of ["body", "h1", ".figures dt", ".names", ".node .head b", ".pods .pod", ".vol em", ".did", ".changes .warn", "summary", "footer"]) {
      const ratio = await contrast(page, selector);
      check(`${colorScheme}: ${selector} can be read`, ratio >= 4.5, ratio.toFixed(2));
    }
    await page.screenshot({ path: join(pictures, `lost-${colorScheme}.png`), fullPage: true });
  });
}

for (const colorScheme of ["light", "dark"]) {
  await open("lost", { colorScheme }, async (page) => {
    await stepButton(page, "zone-a goes dark").click();
    for (const selector of ["#standing", "#zones .head button", "#zones .pods .pod", "#zones .use em", "#moments time", "#timeline .act", "#flow-more"]) {
      const ratio = await contrast(page, selector);
      check(`${colorScheme}: ${selector} can be read`, ratio >= 4.5, ratio.toFixed(2));
    }
    await page.screenshot({ path: join(pictures, `step-${colorScheme}.png`), fullPage: true });
  });
}

await open("lost", { viewport: { width: 320, height: 800 }, colorScheme: "dark" }, async (page) => {
  await stepButton(page, "zone-a goes dark").click();
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check("a step fits a window of 320 pixels", wide <= 320, wide);
  await page.screenshot({ path: join(pictures, "step-narrow.png"), fullPage: true });
});

for (const name of ["quickstart", "lost", "explain", "large"]) {
  for (const width of [400, 320]) {
    await open(name, { viewport: { width, height: 800 } }, async (page) => {
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      check(`${name} fits a window of ${width} pixels`, wide <= width, wide);
      if (width === 400) await page.screenshot({ path: join(pictures, `${name}-narrow.png`), fullPage: name !== "large" });
    });
  }
}

await open("large", {}, async (page) => {
  check("a thousand nodes are drawn", (await page.locator(".node").count()) === 1000);
  const box = await page.locator(".node").first().boundingBox();
  check("as small squares", box.width < 24, JSON.stringify(box));
  const node = page.locator(".node").nth(500);
  await node.hover();
  check("that tell of themselves", await node.locator(".tip").isVisible());
  const bytes = statSync(join(pages, "large.html")).size;
  check("in a small file", bytes < 5_000_000, bytes);
  await page.screenshot({ path: join(pictures, "large.png") });
});

await browser.close();
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
