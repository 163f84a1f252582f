// Usage: node kube.mjs PAGE. The address of the page of a real API server. Prints a line for each check that fails, and `N passed, N failed`.
import { check, finish, fits, goOffline, isLive, kubectl, node, open, picture, pod, says, walk } from "./page.mjs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [address] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));

await open("kube", address, {}, async (page) => {
  await isLive(page);
  await page.locator(".node").nth(2).waitFor();
  check("every node is drawn", (await page.locator(".node").count()) === 3);
  check("every zone is drawn", (await page.locator(".zone").count()) === 3);
  check("local volumes are on their nodes", (await page.locator(".node .vol").count()) === 6);
  check("it may read all that it shows", !(await page.locator("#gaps").isVisible()), await page.locator("#gaps").innerText());

  kubectl("apply", "-f", join(here, "kube.yaml"));
  for (const name of ["db-0", "db-1", "db-2"]) await pod(page, `default/${name}`).waitFor();
  // There are no kubelets: neither the database runs nor the pod of the page that the chart brings.
  await says(page, "#verdict", "4 pods not running");
  check("the title names the cluster", /^4 pods not running · \S+ · Berth$/.test(await page.title()), await page.title());
  await pod(page, "default/db-0").hover();
  await page.locator('#zones button[data-kind="volumes"].tied').first().waitFor();
  check("the volume of a pod is marked when it is pointed at", (await page.locator('#zones button[data-kind="volumes"].tied').count()) === 1);
  await page.mouse.move(0, 0);
  await pod(page, "default/db-0").click();
  await says(page, "#panel", "Why here");
  await page.keyboard.press("Escape");

  kubectl("apply", "-f", join(here, "too-large.yaml"));
  await says(page, "#verdict", "1 pod pending, 4 not running");
  await says(page, "#waiting", "didn't find available persistent volumes to bind");
  await page.locator('#waiting button[data-name="default/big-0"]').click();
  await says(page, "#panel", "What would help");
  check("refusing nodes are coloured", (await page.locator(".node.r0").count()) === 3);
  await picture(page, "kube-waiting", false);
  await page.keyboard.press("Escape");
  await walk(page, "default/big-0");

  kubectl("cordon", "node-a");
  await page.locator(".node.cordoned").waitFor();
  check("a cordoned node is marked", (await node(page, "node-a").getAttribute("class")).includes("cordoned"));

  kubectl("scale", "statefulset", "db", "--replicas=2");
  // No kubelet ends it.
  kubectl("delete", "pod", "db-2", "--force", "--grace-period=0", "--wait=false");
  await pod(page, "default/db-2").waitFor({ state: "detached" });
  await page.locator("#moments button", { hasText: "default/db-2 is placed" }).click();
  await says(page, "#connection", "Showing");
  await pod(page, "default/db-2").waitFor();
  await page.click("#live");
  await isLive(page);
  await pod(page, "default/db-2").waitFor({ state: "detached" });
  kubectl("uncordon", "node-a");
  await page.locator(".node.cordoned").waitFor({ state: "detached" });
  kubectl("scale", "statefulset", "db", "--replicas=3");
  await pod(page, "default/db-2").waitFor();
  check("a pod that was added arrives", (await page.locator("#moments").innerText()).includes("default/db-2 is placed on"));
  await goOffline(page, 3);

  await page.selectOption("#change", "loseZone");
  await page.fill("#target", "zone-b");
  await page.click("#ask");
  await says(page, "#what-if-answer", "Before");
  check("what if a zone is lost", (await page.locator("#what-if-answer").innerText()).includes("Nodes ready"));
  await picture(page, "kube");
});

await open("kube at 320 pixels", address, { viewport: { width: 320, height: 800 } }, async (page) => {
  await isLive(page);
  await page.locator(".node").nth(2).waitFor();
  await fits(page, "kube", 320);
  await picture(page, "kube-narrow", false);
});

await finish();
