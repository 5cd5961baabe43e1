// The dashboard with a job of 4,096 workers on 512 nodes, whose agents are simulated (e2e/bench/scale).
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { browse, Cluster, eventually, findings, root } from "./cluster.mjs";

const nodes = 512;
const workers = 8 * nodes;
const shots = process.env.SHOTS;
const cluster = new Cluster();
const errors = [];
let browser, page, fleet, id;

before(async () => {
  if (shots) mkdirSync(shots, { recursive: true });
  await cluster.start([]);
  const program = join(cluster.dir, "bench");
  const built = spawnSync("go", ["build", "-o", program, "./e2e/bench"], { cwd: root, encoding: "utf8" });
  assert.equal(built.status, 0, built.stderr);
  const server = cluster.server.replace("nats://", `nats://regroup:${cluster.env.REGROUP_SECRET}@`);
  fleet = spawn(program, ["hold", "-agents", `${nodes}`, "-server", server], { stdio: ["pipe", "pipe", "pipe"] });
  let printed = "", said = "";
  fleet.stdout.on("data", (b) => { printed += b; });
  fleet.stderr.on("data", (b) => { said += b; });
  id = await eventually("the job runs", () => {
    assert.equal(fleet.exitCode, null, said);
    return printed.trim();
  }, 120000);
  ({ browser, page } = await browse(errors));
  await page.goto(cluster.link);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
});

after(async () => {
  await browser?.close();
  fleet?.stdin.end();
  if (fleet && fleet.exitCode === null) await new Promise((done) => fleet.on("exit", done));
  await cluster.stop();
});

// open shows a page and returns how long it takes until a text is there, in ms.
async function open(hash, text) {
  await page.goto("about:blank");
  await page.goto(`${cluster.origin}/#${hash}`);
  const began = Date.now();
  await page.getByText(text).first().waitFor({ timeout: 30000 });
  return Date.now() - began;
}

// frames scrolls for two seconds while events come, and returns the longest time between two frames
// and the longest task, in ms.
function frames() {
  return page.evaluate(() => new Promise((done) => {
    let longest = 0, task = 0, last = performance.now();
    const end = last + 2000;
    const watch = new PerformanceObserver((list) => { for (const e of list.getEntries()) task = Math.max(task, e.duration); });
    watch.observe({ type: "longtask" });
    const frame = (now) => {
      longest = Math.max(longest, now - last);
      last = now;
      window.scrollBy(0, 40);
      for (const box of document.querySelectorAll(".tall, .log")) box.scrollTop += 40;
      if (now < end) requestAnimationFrame(frame);
      else { watch.disconnect(); done({ longest: Math.round(longest), task: Math.round(task) }); }
    };
    requestAnimationFrame(frame);
  }));
}

const all = [
  ["overview", "/overview", "What needs you"], ["jobs", "/jobs", "hold"], ["timeline", "", "Incidents"], ["metrics", "/metrics", "loss"], ["workers", "/workers", "node-0000"],
  ["samples", "/samples", "no ledger"], ["traces", "/traces", "Traces"], ["events", "/events", "worker.ready"], ["spec", "/spec", "every default"], ["nodes", "/nodes", "node-0000"], ["system", "/system", "registry"],
];

test(`every page with ${workers} workers is clean and does not stutter`, async () => {
  const rows = [];
  for (const [name, path, text] of all) {
    const hash = ["overview", "jobs", "nodes", "system"].includes(name) ? path : `/jobs/${id}${path}`;
    const took = await open(hash, text);
    const { longest, task } = await frames();
    rows.push({ page: name, "first text, ms": took, "longest frame, ms": longest, "longest task, ms": task });
    const inPage = await page.locator("tr, svg.gantt > g").count();
    assert.ok(inPage < 400, `${name} has ${inPage} rows in the page`);
    assert.deepEqual(await findings(page), [], name);
    if (shots) await page.screenshot({ path: join(shots, `many-${name}.png`) });
  }
  console.table(rows);
  assert.deepEqual(errors.splice(0), []);
});

test("a lost node is on the page", async () => {
  await open(`/jobs/${id}`, "Timeline");
  fleet.stdin.write("lose\n");
  await page.locator("li[data-incident]", { hasText: `node-${String(nodes - 1).padStart(4, "0")}` }).first().waitFor({ timeout: 60000 });
  if (shots) await page.screenshot({ path: join(shots, "many-lost.png") });
  assert.deepEqual(errors.splice(0), []);
});
