// Makes the pictures of the documentation anew, from a job that loses a worker and one that fails:
// node pictures.mjs DIR
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { browse, Cluster, eventually, root } from "./cluster.mjs";

const folder = process.argv[2];
if (!folder) throw new Error("usage: node pictures.mjs DIR");
mkdirSync(folder, { recursive: true });

const cluster = new Cluster(), errors = [];
let browser;
try {
  await cluster.start();
  let page;
  ({ browser, page } = await browse(errors, { viewport: { width: 1200, height: 760 }, colorScheme: "light" }));
  await page.goto(cluster.link);
  const id = cluster.submit("--recovery", "in-process", "--workers", "2:3", "--name", "mnist", "--", join(root, "bin/mnist"), "-epochs", "1000", "-step-time", "15ms");
  const trains = () => eventually("three workers train", () => {
    const job = cluster.job(id);
    return job.state === "running" && job.generations.at(-1)?.world === 3 && !job.open_incident && job.step > 300;
  }, 60000);
  await trains();
  process.kill(cluster.job(id).workers.find((w) => w.rank === 1).pid, "SIGKILL");
  await eventually("the incident", () => cluster.job(id).incidents.some((i) => i.cause.kind === "worker-failed"));
  await trains();
  const step = cluster.job(id).step;
  const failed = cluster.submit("--workers", "1", "--max-restarts", "0", "--name", "typo", "--", "python3", "-c", "print('epoch 0', flush=True)\nweights = {'w': 1.0}\nprint(weights['bias'])");
  await eventually("the other has failed", () => cluster.job(failed).state === "failed", 60000);
  await eventually("there are curves", () => cluster.job(id).step > step + 1200, 120000);
  const picture = async (name, hash, shown) => {
    await page.evaluate((h) => { location.hash = h; }, hash);
    await page.locator(shown).first().waitFor();
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    await page.screenshot({ path: join(folder, `${name}.png`) });
  };
  await picture("overview", "#/overview", ".strip .mark");
  await picture("timeline", `#/jobs/${id}`, "svg.gantt path.cross");
  await picture("metrics", `#/jobs/${id}/metrics?smooth=0.6`, ".chart canvas");
  await picture("failed", `#/jobs/${failed}`, "pre.traceback");
  await page.evaluate((h) => { location.hash = h; }, `#/jobs/${id}`);
  await page.locator("svg.gantt rect.training").first().waitFor();
  process.kill(cluster.children[0].pid, "SIGSTOP");
  try {
    await page.getByRole("alert").getByText("Not connected").waitFor({ timeout: 30000 });
    await page.locator("svg.gantt rect.unobserved").first().waitFor();
    await page.screenshot({ path: join(folder, "disconnected.png") });
  } finally {
    process.kill(cluster.children[0].pid, "SIGCONT");
  }
} finally {
  await browser?.close();
  await cluster.stop();
}
