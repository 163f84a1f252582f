// Usage: node picture.mjs PAGE. Takes the picture of docs/view.md: a database with its volumes, and a pod that fits nowhere.
import { finish, isLive, kubectl, open, picture, pod, says } from "./page.mjs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [address] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));

await open("picture", address, { viewport: { width: 1240, height: 1180 }, colorScheme: "light" }, async (page) => {
  await isLive(page);
  kubectl("apply", "-f", "examples/up/database.yaml");
  for (const name of ["db-0", "db-1", "db-2"]) await pod(page, `default/${name}`).waitFor();
  kubectl("cordon", "node-c2");
  await page.locator(".node.cordoned").waitFor();
  kubectl("apply", "-f", join(here, "too-large.yaml"));
  await says(page, "#waiting", "didn't find available persistent volumes to bind");
  await says(page, "#verdict", "1 pod pending");
  await picture(page, "view", false);
});

await finish();
