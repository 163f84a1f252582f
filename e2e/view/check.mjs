// Usage: node check.mjs PAGE LARGE BESIDE. Addresses of the pages of `berth up`, of one with a thousand nodes, and of `berth view` beside the
// first. Prints a line for each check that fails, and `N passed, N failed`.
import { contrast } from "./contrast.mjs";
import { browser, check, finish, isLive, kubectl, node, open, picture, pod, says } from "./page.mjs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [address, large, beside] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));

await open("token", new URL(address).origin, {}, async (page) => {
  await says(page, "#connection", "No token");
  check("without the token there is nothing to see", (await page.locator(".node").count()) === 0);
  await page.fill("#token", new URL(address).hash.slice(1));
  await page.click("#token-form button");
  await isLive(page);
  await page.reload();
  await isLive(page);
  check("the browser keeps the token for the tab", (await page.locator(".node").count()) === 9);
});

await open("map", address, {}, async (page) => {
  await isLive(page);
  await says(page, "#verdict", "Every pod has a node");
  check("the token does not stay in the address", !page.url().includes("#"), page.url());
  check("every node is drawn", (await page.locator(".node").count()) === 9);
  check("every zone is drawn", (await page.locator(".zone").count()) === 3);
  check("every rack is drawn", (await page.locator(".rack").count()) === 9);
  check("local volumes are on their nodes", (await page.locator(".node .vol").count()) === 18);

  kubectl("apply", "-f", "examples/up/database.yaml");
  await pod(page, "default/db-0").waitFor();
  await pod(page, "default/db-2").waitFor();
  await page.locator(".zone > .vols .vol").nth(2).waitFor();
  await says(page, "#verdict", "Every pod has a node");
  await pod(page, "default/db-0").hover();
  check("the volumes of a pod are marked when it is pointed at", (await page.locator('button[data-kind="volumes"].tied').count()) === 2);
  await page.mouse.move(0, 0);
  check("and no longer when it is not", (await page.locator(".tied").count()) === 0);
  await pod(page, "default/db-1").focus();
  check("and when it has the focus", (await page.locator('button[data-kind="volumes"].tied').count()) === 2);
  await page.locator('.node button[data-kind="volumes"]:not(.free)').first().focus();
  check("the focus moves on", (await page.locator('button[data-kind="pods"].tied').count()) <= 1);

  await pod(page, "default/db-0").click();
  await says(page, "#panel", "Why here");
  await says(page, "#panel", "the best first");
  check("a placed pod tells its claims", (await page.locator('#panel button[data-kind="claims"]').count()) === 2);
  await page.locator('#panel button[data-kind="claims"]').first().click();
  await says(page, "#panel-title", "Claim default/data-db-0");
  await page.locator('#panel button[data-kind="volumes"]').first().click();
  await says(page, "#panel-title", "Volume node-");
  await page.keyboard.press("Escape");
  check("Escape closes the panel", !(await page.locator("#panel").isVisible()));
  check("and the focus is where it was", (await page.evaluate(() => document.activeElement.dataset.name)) === "default/db-0");

  kubectl("apply", "-f", join(here, "too-large.yaml"));
  await says(page, "#verdict", "1 pod waits for a node");
  await says(page, "#waiting", "didn't find available persistent volumes to bind");
  await page.locator('#waiting button[data-name="default/big-0"]').click();
  await says(page, "#panel", "What would help");
  check("the advice is that of explain", (await page.locator("#panel").innerText()).includes("reduce claim data-big-0 to 200Gi"), await page.locator("#panel").innerText());
  check("refusing nodes are coloured", (await page.locator(".node.r0").count()) === 9);
  check("and the colours are explained", (await page.locator("#refusal-legend").innerText()).includes("Refusing default/big-0"));
  await picture(page, "waiting", false);
  await page.locator("#close").click();
  check("and back", (await page.locator(".node.r0").count()) === 0);
  await picture(page, "map-light");

  kubectl("cordon", "node-a1");
  await page.locator(".node.cordoned").waitFor();
  check("a cordoned node is marked", (await node(page, "node-a1").getAttribute("class")).includes("cordoned"));
  await node(page, "node-a1").locator(".head button").click();
  await says(page, "#panel", "ready, cordoned");
  await page.keyboard.press("Escape");

  kubectl("scale", "statefulset", "db", "--replicas=2");
  await pod(page, "default/db-2").waitFor({ state: "detached" });
  await page.locator("#moments button", { hasText: "default/db-2 is placed" }).click();
  await says(page, "#connection", "Showing");
  await pod(page, "default/db-2").waitFor();
  check("a moment of the past shows what was there", !(await node(page, "node-a1").getAttribute("class")).includes("cordoned"));
  await page.locator("#moment").focus();
  await page.keyboard.press("Home");
  await pod(page, "default/db-0").waitFor({ state: "detached" });
  check("the beginning shows an empty cluster", (await page.locator("#zones button.pod").count()) === 0);
  await picture(page, "past");
  await page.click("#play");
  await pod(page, "default/db-0").waitFor();
  await page.click("#live");
  await isLive(page);
  await pod(page, "default/db-2").waitFor({ state: "detached" });
  check("and live again", (await page.locator(".node.cordoned").count()) === 1);

  await page.fill("#find", "node-b2-disk1");
  await says(page, "#panel-title", "Volume node-b2-disk1");
  await page.locator('#panel button[data-kind="classes"]').click();
  await says(page, "#panel-title", "Class local");
  check("a class tells its provisioner", (await page.locator("#panel").innerText()).includes("kubernetes.io/no-provisioner"));
  await page.keyboard.press("Escape");

  await page.selectOption("#change", "loseZone");
  await page.fill("#target", "zone-b");
  await page.click("#ask");
  await says(page, "#what-if-answer", "Before");
  check("what if a zone is lost", (await page.locator("#what-if-answer").innerText()).includes("Nodes ready"), await page.locator("#what-if-answer").innerText());
  check("on the command line, too", (await page.locator("#what-if-answer pre").textContent()).includes("zone: zone-b"));
  await page.selectOption("#change", "scale");
  await page.fill("#target", "StatefulSet/default/db");
  await page.fill("#number", "5");
  await page.click("#ask");
  await says(page, "#what-if-answer", "default/db-3");
  await picture(page, "what-if");
  await page.selectOption("#change", "cordon");
  await page.fill("#target", "nobody");
  await page.click("#ask");
  await says(page, "#what-if-answer", "nobody");

  // As when a laptop sleeps, or berth hangs.
  process.kill(Number(process.env.UP_PID), "SIGSTOP");
  await says(page, "#connection", "reconnecting");
  check("old data is told of", /Showing data from (\d+|a moment)/.test(await page.locator("#connection").innerText()), await page.locator("#connection").innerText());
  check("and still shown", (await page.locator(".node").count()) === 9);
  process.kill(Number(process.env.UP_PID), "SIGCONT");
  await isLive(page);
  kubectl("uncordon", "node-a1");
  await page.locator(".node.cordoned").waitFor({ state: "detached" });

  const ids = await page.locator("[id]").evaluateAll((found) => found.map((element) => element.id));
  check("no name is given twice", new Set(ids).size === ids.length, ids.join(" "));
  const labels = await page.locator("main > section").evaluateAll((found) => found.every((one) => document.getElementById(one.getAttribute("aria-labelledby"))));
  check("every part has a name for those who do not see it", labels);
});

await open("beside", beside, {}, async (page) => {
  await isLive(page);
  await pod(page, "default/db-0").waitFor();
  check("berth view shows the same cluster", (await page.locator(".node").count()) === 9);
});

for (const colorScheme of ["light", "dark"]) {
  await open(`the page ${colorScheme}`, address, { colorScheme }, async (page) => {
    await isLive(page);
    await pod(page, "default/db-0").waitFor();
    for (const selector of ["body", "#verdict", ".figures dt", ".node .head button", "#zones button.pod", ".vol em", ".use em", "#moments time", "#connection", ".act", "footer"]) {
      const ratio = await contrast(page, selector);
      check(`${colorScheme}: ${selector} can be read`, ratio >= 4.5, ratio.toFixed(2));
    }
    await picture(page, `map-${colorScheme}`);
  });
}

for (const [name, url, width] of [["map", address, 400], ["map", address, 320], ["large", large, 320]]) {
  await open(`${name} at ${width} pixels`, url, { viewport: { width, height: 800 } }, async (page) => {
    await isLive(page);
    await page.locator(".node").first().waitFor();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    check(`${name} fits a window of ${width} pixels`, wide <= width, wide);
    await page.locator('.node button[data-kind="nodes"]').first().click();
    await says(page, "#panel-title", "Node node-a1");
    const opened = await page.evaluate(() => document.documentElement.scrollWidth);
    check(`and so does its panel at ${width} pixels`, opened <= width, opened);
    if (name === "map") await picture(page, `narrow-${width}`, false);
  });
}

await open("large", large, {}, async (page) => {
  await isLive(page);
  await page.locator(".node").nth(999).waitFor({ state: "attached" });
  check("a thousand nodes are drawn", (await page.locator(".node").count()) === 1000);
  const box = await page.locator(".node").first().boundingBox();
  check("as small squares", box.width < 24, JSON.stringify(box));
  check("with one stop for the keyboard", (await page.locator('.node > button[tabindex="0"]').count()) === 1);
  await page.locator(".node > button").first().focus();
  await page.keyboard.press("ArrowRight");
  check("arrows go on", (await page.evaluate(() => document.activeElement.dataset.name)) !== "node-a1");
  await page.keyboard.press("Enter");
  await says(page, "#panel", "Local volumes");
  await page.keyboard.press("Escape");
  await picture(page, "large", false);
});

// A page of another origin can neither read it nor show it.
const elsewhere = createServer((_, response) => response.setHeader("Content-Type", "text/html").end("<title>elsewhere</title>"));
await new Promise((done) => elsewhere.listen(0, "127.0.0.1", done));
const context = await browser.newContext();
const page = await context.newPage();
await page.goto(`http://127.0.0.1:${elsewhere.address().port}/`);
const token = new URL(address).hash.slice(1);
const found = await page.evaluate(
  async ([origin, bearer]) => {
    const read = (options) => fetch(`${origin}/api/history`, options).then(() => "read", () => "refused");
    const frame = document.createElement("iframe");
    frame.src = origin;
    const framed = new Promise((done) => (frame.onload = done));
    document.body.append(frame);
    await framed;
    return [await read({}), await read({ headers: { Authorization: `Bearer ${bearer}` } }), await read({ method: "POST" })];
  },
  [new URL(address).origin, token],
);
check("another page cannot read it, not even with the token", found.every((one) => one === "refused"), found.join());
const inner = page.frames()[1];
const shown = await inner.evaluate(() => document.querySelectorAll("#zones").length).catch(() => 0);
check("nor show it in a frame", shown === 0);
await context.close();
elsewhere.close();

await finish();
