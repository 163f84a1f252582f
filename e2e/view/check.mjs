// Usage: node check.mjs PAGE LARGE HUGE BESIDE. Addresses of the pages of `berth up`, of one with a thousand nodes, of one with five thousand, and of
// `berth view` beside the first. Prints a line for each check that fails, and `N passed, N failed`.
import { contrast } from "./contrast.mjs";
import { browser, check, finish, fits, goOffline, isLive, kubectl, node, open, picture, pod, says, tabTo, walk } from "./page.mjs";
import { execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [address, large, huge, beside] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));

const kubectlHuge = (...words) => kubectl("--kubeconfig", process.env.HUGE, ...words);

await open("token", new URL(address).origin, {}, async (page) => {
  await says(page, "#connection", "No token");
  check("without the token there is nothing to see", (await page.locator(".node").count()) === 0);
  await page.fill("#token", new URL(address).hash.slice(1));
  await page.click("#token-form button");
  await isLive(page);
  await page.reload();
  await isLive(page);
  check("the browser keeps the token for the tab", (await page.locator(".node").count()) === 9);
  const elsewhere = await page.evaluate(() => [localStorage.length, document.cookie.length]);
  check("and nowhere else", elsewhere.join() === "0,0", elsewhere.join());
});

await open("map", address, {}, async (page) => {
  await isLive(page);
  await says(page, "#verdict", "Every pod runs");
  check("the page names its cluster", /^berth · https:\/\/127\.0\.0\.1:\d+$/.test(await page.locator("#cluster").innerText()), await page.locator("#cluster").innerText());
  check("and so does its title", (await page.title()) === "Every pod runs · berth · Berth", await page.title());
  check("with the time", /^at \d\d:\d\d:\d\d$/.test(await page.locator("#shown-at").innerText()), await page.locator("#shown-at").innerText());
  check("the token does not stay in the address", !page.url().includes("#"), page.url());
  check("every node is drawn", (await page.locator(".node").count()) === 9);
  check("every zone is drawn", (await page.locator(".zone").count()) === 3);
  check("every rack is drawn", (await page.locator(".rack").count()) === 9);
  check("local volumes are on their nodes", (await page.locator(".node .vol").count()) === 18);

  // What moves because of a change of the cluster, and not because somebody asked for it.
  await page.evaluate(() => {
    window.shifted = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => (window.shifted += entry.value))).observe({ type: "layout-shift" });
  });
  // The past is asked for when somebody wants to see it.
  let pasts = 0;
  page.on("request", (request) => (pasts += request.url().endsWith("/api/history") ? 1 : 0));
  kubectl("apply", "-f", "examples/up/database.yaml");
  await says(page, "#flow", "default/data-db-0");
  await says(page, "#flow", "in use");
  check("a claim goes to its volume and its node", /default\/data-db-\d\s*node-..-disk\d\s*node-..\s/.test(await page.locator("#flow li", { hasText: "default/data-db-" }).first().innerText()), await page.locator("#flow").innerText());
  await pod(page, "default/db-0").waitFor();
  await pod(page, "default/db-2").waitFor();
  await page.locator(".zone > .own .vol").nth(2).waitFor();
  await says(page, "#verdict", "Every pod runs");
  await pod(page, "default/db-0").hover();
  check("the volumes of a pod are marked when it is pointed at", (await page.locator('#zones button[data-kind="volumes"].tied').count()) === 2);
  await page.mouse.move(0, 0);
  check("and no longer when it is not", (await page.locator(".tied").count()) === 0);
  await page.locator('.node .vol.free button[data-kind="volumes"]').first().hover();
  check("the node that can reach a free volume is marked", (await page.locator(".node.tied").count()) === 1, await page.locator(".node.tied").count());
  await page.mouse.move(0, 0);
  await page.locator("#flow li").first().waitFor({ state: "detached" });
  check("what has arrived goes", (await page.locator("#flow li").count()) === 0);
  const shifted = await page.evaluate(() => window.shifted);
  check("nothing jumps while the cluster changes", shifted < 0.05, shifted);
  check("a zone sums up its volumes", /Volumes: 90Gi requested of 110Gi, 800Gi free/.test(await page.locator(".sum").first().innerText()), await page.locator(".sum").first().innerText());
  await pod(page, "default/db-1").focus();
  check("and when it has the focus", (await page.locator('#zones button[data-kind="volumes"].tied').count()) === 2);
  await page.locator('.node button[data-kind="volumes"]:not(.free)').first().focus();
  check("the focus moves on", (await page.locator('#zones button[data-kind="pods"].tied').count()) <= 1);

  await pod(page, "default/db-0").click();
  await says(page, "#panel", "Why here");
  await says(page, "#panel", "the best first");
  check("a pod with local volumes is compared with other nodes", /[2-9] nodes that fit, the best first/.test(await page.locator("#panel").innerText()), await page.locator("#panel").innerText());
  check("and the page says how", (await page.locator("#panel").innerText()).includes("Explained as if its claims data-db-0"), await page.locator("#panel").innerText());
  check("a placed pod tells its claims", (await page.locator('#panel button[data-kind="claims"]').count()) === 2);
  await page.locator('#panel button[data-kind="claims"]').first().click();
  await says(page, "#panel-title", "Claim default/data-db-0");
  await page.locator('#panel button[data-kind="volumes"]').first().click();
  await says(page, "#panel-title", "Volume node-");
  await page.keyboard.press("Escape");
  check("Escape closes the panel", !(await page.locator("#panel").isVisible()));
  check("and the focus is where it was", (await page.evaluate(() => document.activeElement.dataset.name)) === "default/db-0");

  kubectl("apply", "-f", join(here, "too-large.yaml"));
  await says(page, "#verdict", "1 pod pending");
  await says(page, "#waiting", "didn't find available persistent volumes to bind");
  await page.locator('#waiting button[data-name="default/big-0"]').click();
  await says(page, "#panel", "What would help");
  check("the advice is that of explain", (await page.locator("#panel").innerText()).includes("reduce claim data-big-0 to 200Gi"), await page.locator("#panel").innerText());
  check("refusing nodes are coloured", (await page.locator(".node.r0").count()) === 9);
  check("and the colours are explained", (await page.locator("#refusal-legend").innerText()).includes("Refusing default/big-0"));
  await picture(page, "waiting", false);
  await page.locator("#close").click();
  check("and back", (await page.locator(".node.r0").count()) === 0);
  await walk(page, "default/big-0");
  await picture(page, "map-light");

  kubectl("cordon", "node-a1");
  await page.locator(".node.cordoned").waitFor();
  check("a cordoned node is marked", (await node(page, "node-a1").getAttribute("class")).includes("cordoned"));
  await node(page, "node-a1").locator(".head button").click();
  await says(page, "#panel", "ready, cordoned");
  await page.keyboard.press("Escape");

  kubectl("taint", "node", "node-c3", "dedicated=db:NoSchedule");
  await says(page, ".taints", "dedicated=db:NoSchedule");
  kubectl("taint", "node", "node-c3", "dedicated-");
  await page.locator(".taints").waitFor({ state: "detached" });

  kubectl("scale", "statefulset", "db", "--replicas=2");
  await pod(page, "default/db-2").waitFor({ state: "detached" });
  check("nobody has asked for the past yet", pasts === 0, pasts);
  await page.locator("#moments button", { hasText: "default/db-2 is placed" }).click();
  await says(page, "#connection", "Showing");
  check("and then it is read once", pasts === 1, pasts);
  await pod(page, "default/db-2").waitFor();
  check("a sentence says how it stood", /3 of \d pods on a node/.test(await page.locator("#standing").innerText()), await page.locator("#standing").innerText());
  check("the title says that it is the past", / · at \d\d:\d\d:\d\d · berth · Berth$/.test(await page.title()), await page.title());
  check("a moment of the past shows what was there", !(await node(page, "node-a1").getAttribute("class")).includes("cordoned"));
  await page.locator("#moment").focus();
  await page.keyboard.press("Home");
  await pod(page, "default/db-0").waitFor({ state: "detached" });
  check("the beginning shows an empty cluster", (await page.locator("#zones button.pod").count()) === 0);
  await picture(page, "past");
  await page.locator("#moments").waitFor();
  // In the past an explanation is given on request only: it is about now.
  await page.keyboard.press("End");
  await page.locator('#waiting button[data-name="default/big-0"]').click();
  await says(page, "#panel", "Explain as of now");
  check("the past shows the recorded message", (await page.locator("#panel").innerText()).includes("didn't find available persistent volumes to bind"), await page.locator("#panel").innerText());
  check("and explains nothing by itself", !(await page.locator("#panel").innerText()).includes("What would help"));
  check("and colours nothing", (await page.locator(".node.r0").count()) === 0);
  await page.locator("#explain-now").click();
  await says(page, "#panel", "What would help");
  check("what is explained is labelled", (await page.locator("#panel h3").first().innerText()) === "As of now", await page.locator("#panel h3").first().innerText());
  check("and still colours nothing", (await page.locator(".node.r0").count()) === 0);
  await page.click("#live");
  await says(page, "#panel", "Why it is pending");
  await page.locator(".node.r0").first().waitFor();
  check("what is shown live is explained as it is", (await page.locator(".node.r0").count()) > 0);
  await page.keyboard.press("Escape");
  await page.locator("#moment").focus();
  await page.keyboard.press("Home");
  await pod(page, "default/db-0").waitFor({ state: "detached" });
  await page.click("#play");
  await pod(page, "default/db-0").waitFor();
  await page.click("#live");
  await isLive(page);
  await pod(page, "default/db-2").waitFor({ state: "detached" });
  check("and live again", (await page.locator(".node.cordoned").count()) === 1);
  kubectl("scale", "statefulset", "db", "--replicas=3");
  await pod(page, "default/db-2").waitFor();
  await page.locator("#moments button", { hasText: "default/db-2 is placed on" }).nth(1).waitFor();
  check("a pod that was added arrives", (await page.locator("#moments button", { hasText: "default/db-2 is placed on" }).count()) === 2);

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
  check("in how many pods", /pods? would not run/.test(await page.locator("#what-if-answer h3").innerText()), await page.locator("#what-if-answer h3").innerText());
  check("lost nodes are marked on the map", (await page.locator(".node.r0").count()) === 3 && (await page.locator("#refusal-legend").innerText()).includes("lost (3)"), await page.locator("#refusal-legend").innerText());
  check("and so are pods that change", (await page.locator("#zones .pod.changes").count()) > 0);
  const told = await page.locator("#what-if-answer pre").textContent();
  check("on the command line, too", told.includes("zone: zone-b") && told.includes(`--kubeconfig ${process.env.KUBECONFIG} --context berth`), told);
  const played = execFileSync("bash", ["-c", `cd "$(mktemp -d)" && berth() { "$BERTH_BINARY" "$@"; } && ${told.replace(/^(berth simulate .*)$/m, "$1 --fail-on never -o json")}`], { stdio: ["ignore", "pipe", "inherit"] });
  const steps = JSON.parse(played).steps;
  const row = await page.locator("#what-if-answer tr", { hasText: "Pods with a node" }).innerText();
  check("which gives the same", row.includes(`${steps[0].summary.placed}\t${steps[1].summary.placed}`), `${row} ${steps.map((step) => step.summary.placed)}`);
  await page.locator("#refusal-legend button").click();
  check("and the marks can be cleared", (await page.locator(".node.r0, .pod.changes").count()) === 0);
  await page.selectOption("#change", "scale");
  await page.fill("#target", "StatefulSet/default/db");
  await page.fill("#number", "5");
  await page.click("#ask");
  await says(page, "#what-if-answer", "default/db-3");
  await picture(page, "what-if");
  await page.selectOption("#change", "addNodes");
  await page.fill("#target", "node-a1");
  await page.fill("#number", "2");
  await page.click("#ask");
  await says(page, "#what-if-answer", "Free in zone");
  check("what is free is compared zone by zone", /zone-a\t23 → 39\t/.test(await page.locator("#what-if-answer").innerText()), await page.locator("#what-if-answer").innerText());
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

  await goOffline(page, 9);

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
    await fits(page, name, width);
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

await open("huge", huge, {}, async (page) => {
  await isLive(page);
  await says(page, "#figures", "of 5000");
  await page.locator(".fold").nth(8).waitFor();
  check("the racks of five thousand nodes are folded", (await page.locator(".fold").count()) === 9 && (await page.locator(".node").count()) === 0, await page.locator(".node").count());
  check("and sum up their nodes", /55[56] nodes/.test(await page.locator(".rack").first().innerText()), await page.locator(".rack").first().innerText());
  check("there is one stop for the keyboard", (await page.locator('.fold[tabindex="0"]').count()) === 1);
  check("which Tab reaches", await tabTo(page, ".fold"));
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await page.locator(".node").nth(500).waitFor({ state: "attached" });
  check("a rack opens", (await page.locator('.fold[aria-expanded="true"]').count()) === 1);
  check("and keeps the focus", await page.evaluate(() => document.activeElement.matches('.fold[aria-expanded="true"]')));
  await picture(page, "huge-opened", false);
  const begun = Date.now();
  kubectlHuge("apply", "-f", join(here, "too-large.yaml"));
  await page.locator('#waiting button[data-name="default/big-0"]').click();
  await says(page, "#panel", "What would help");
  check("a folded rack counts the nodes that refuse a pod", (await page.locator(".marks .swatch.r0").count()) >= 8, await page.locator(".marks .swatch.r0").count());
  check("on a page that stays usable", Date.now() - begun < 60_000, Date.now() - begun);
  await page.keyboard.press("Escape");
  await page.fill("#find", "node-c1000");
  await says(page, "#panel-title", "Node node-c1000");
  await page.keyboard.press("Escape");
  await page.locator('.fold[aria-expanded="true"]').click();
  check("and folds again", (await page.locator(".node").count()) === 0);
  await picture(page, "huge", false);
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
