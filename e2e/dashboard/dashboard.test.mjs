// The dashboard in a browser, on a cluster of three nodes whose worker is killed.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { browse, Cluster, eventually, findings, root } from "./cluster.mjs";

const shots = process.env.SHOTS;
const cluster = new Cluster();
const errors = [];
let browser, page, id;

before(async () => {
  if (shots) mkdirSync(shots, { recursive: true });
  await cluster.start();
  ({ browser, page } = await browse(errors));
  id = cluster.submit("--recovery", "in-process", "--workers", "2:3", "--name", "mnist", "--", join(root, "bin/mnist"), "-epochs", "1000", "-step-time", "15ms");
  await eventually("three workers train", () => {
    const job = cluster.job(id);
    return job.step > 50 && job.generations.at(-1).world === 3;
  }, 60000);
});

after(async () => {
  await browser?.close();
  await cluster.stop();
});

// clean fails with what the console has said since the last call.
function clean() {
  assert.deepEqual(errors.splice(0), []);
}

async function shot(name) {
  if (shots) await page.screenshot({ path: join(shots, `${name}.png`) });
}

// goto opens a page and waits until it shows something of it.
async function goto(hash, text) {
  await page.goto(`${cluster.origin}/#${hash}`);
  await page.getByText(text).first().waitFor();
}

test("a link opens the dashboard once", async () => {
  await page.goto(cluster.link);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.equal(new URL(page.url()).pathname, "/");
  const again = await page.request.get(cluster.link, { maxRedirects: 0 });
  assert.equal(again.status(), 403);
  assert.match(await again.text(), /regroup dashboard/);
  await page.getByText("live", { exact: true }).waitFor();
  clean();
});

test("without a session there is a form, and the token opens it", async () => {
  const context = await browser.newContext();
  const other = await context.newPage();
  await other.goto(cluster.origin);
  await other.getByText("This browser has no session").waitFor();
  const { token } = JSON.parse(readFileSync(join(cluster.dir, "gateway.json"), "utf8"));
  await other.getByLabel("Token").fill("wrong");
  await other.getByRole("button", { name: "Log in" }).click();
  await other.getByRole("alert").waitFor();
  await other.getByLabel("Token").fill(token);
  await other.getByRole("button", { name: "Log in" }).click();
  await other.getByRole("heading", { name: "Overview" }).waitFor();
  await context.close();
});

test("the incident of a killed worker is on the page within a second", async () => {
  await goto(`/jobs/${id}`, "Timeline");
  await page.locator("svg.gantt rect.training").first().waitFor();
  const known = await page.locator("li[data-incident]").count();
  const worker = cluster.job(id).workers.find((w) => w.rank === 2);
  const killed = Date.now();
  process.kill(worker.pid, "SIGKILL");
  await page.waitForFunction((n) => [...document.querySelectorAll("li[data-incident]")].filter((li) => li.textContent.includes("SIGKILL")).length > 0 && document.querySelectorAll("li[data-incident]").length > n, known, { polling: "raf", timeout: 10000 });
  const took = Date.now() - killed;
  console.log(`the incident was on the page after ${took} ms`);
  assert.ok(took < 1000, `it took ${took} ms`);
  await page.locator("svg.gantt path.cross").waitFor();
  await page.locator("svg.gantt rect.incident:not(.planned)").first().waitFor();
  await eventually("the worker is replaced", () => cluster.job(id).generations.at(-1).world === 3);
  clean();
});

test("steps and output come live", async () => {
  await goto(`/jobs/${id}/logs`, "epoch");
  const count = () => page.locator("[role=status]", { hasText: "lines" }).textContent().then((t) => Number(t.match(/(\d+) lines/)?.[1]));
  const first = await count();
  await eventually("more lines", async () => (await count()) > first, 5000);
  await page.getByLabel("Search").fill("accuracy");
  await eventually("only those", async () => (await page.locator(".log .row").allTextContents()).every((t) => t.includes("accuracy")), 3000);
  await page.getByLabel("Search").fill("no line has this (");
  await eventually("none", async () => (await page.locator(".log .row").count()) === 0, 3000);
  const step = () => page.locator(".card .value").first().textContent().then((t) => Number(t.replaceAll(/\D/g, "")));
  const before = await step();
  await eventually("a later step", async () => (await step()) > before, 2000);
  clean();
});

test("what the job can lose is on its page", async () => {
  await goto(`/jobs/${id}`, "Timeline");
  const value = page.locator(".card", { hasText: "losses survived" }).locator(".value");
  await eventually("two losses are survived", async () => (await value.textContent()) === "2");
  await page.getByText(/^Newest whole commit: step [\d ]+, .+ old, survives the loss of any 2 workers, .+; reported .+ ago\.$/).waitFor();
  process.kill(cluster.job(id).workers.find((w) => w.rank === 2).pid, "SIGKILL");
  await page.waitForFunction(() => [...document.querySelectorAll(".card")].some((c) => c.textContent.includes("losses survived") && /^(unknown|1)$/.test(c.querySelector(".value").textContent)), null, { polling: "raf", timeout: 10000 });
  await eventually("as many as before", async () => (await value.textContent()) === "2");
  clean();
});

test("a fault of accessibility, and an error, would be noticed", async () => {
  await goto("/jobs", "mnist");
  await page.evaluate(() => { const b = document.createElement("button"); b.id = "nameless"; document.querySelector("main").append(b); console.error("noticed"); });
  assert.deepEqual(await findings(page), ["button-name: #nameless"]);
  await page.evaluate(() => document.getElementById("nameless").remove());
  await eventually("the error", () => errors.length > 0);
  assert.match(errors.splice(0).join(), /noticed/);
});

const all = [
  ["overview", "/overview", "What needs you"], ["jobs", "/jobs", "mnist"], ["timeline", "", "Incidents"], ["metrics", "/metrics", "steps/s"], ["logs", "/logs", "epoch"],
  ["workers", "/workers", "node-b"], ["samples", "/samples", "Epoch"], ["traces", "/traces", "rendezvous g"], ["events", "/events", "round.sealed"], ["spec", "/spec", "every default"], ["nodes", "/nodes", "node-c"], ["system", "/system", "registry"],
];

test("the system shows the broker, its streams and what services have to handle", async () => {
  await goto("/system", "drops the oldest");
  const table = (name) => page.getByRole("region", { name, exact: true });
  const rows = (name) => table(name).locator("tbody tr").allTextContents();
  const { brokers } = await (await page.request.get(`${cluster.origin}/api/v1/system`)).json();
  assert.equal(brokers.brokers.length, 1);
  assert.equal(brokers.brokers[0].broker, brokers.connected);
  const streams = brokers.streams.map((s) => s.stream);
  assert.ok(streams.includes("REGROUP_EVT") && streams.includes("KV_jobs"), streams.join());
  assert.ok((await rows("Brokers")).some((r) => r.includes(brokers.connected) && r.includes("current") && r.includes("answers")));
  const facts = (await rows("Streams")).find((r) => r.startsWith("REGROUP_EVT"));
  assert.ok(facts.includes(brokers.connected) && facts.includes("1.0 GiB"), facts);
  await eventually("each service is on the page with what it has to handle", async () => { // the gateway asks for that every few seconds
    const services = await rows("Backlogs");
    return ["discovery", "scheduler", "rendezvous", "registry"].every((name) => services.some((r) => r.startsWith(name)));
  });
  await eventually("every consumer is known, and none is far behind", async () => {
    const { brokers: now } = await (await page.request.get(`${cluster.origin}/api/v1/system`)).json();
    const all = now.streams.flatMap((s) => s.consumers);
    return all.length >= 6 && all.every((c) => !c.unknown && c.pending < 100);
  });
  await page.request.get(`${cluster.origin}/metrics`).then(async (r) => assert.match(await r.text(), /regroup_stream_replica_current\{broker="[^"]+",stream="REGROUP_EVT"\} 1/));
  clean();
});

for (const scheme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    test(`every page is clean, ${scheme}, ${width} columns`, async () => {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height: 800 });
      for (const [name, path, text] of all) {
        const hash = ["overview", "jobs", "nodes", "system"].includes(name) ? path : `/jobs/${id}${path}`;
        await goto(hash, text);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `${name} is ${wide} columns wide`);
        assert.deepEqual(await findings(page), [], name);
        await shot(`${name}-${scheme}-${width}`);
      }
      clean();
    });
  }
}

test("a trace has its spans with what is known of each", async () => {
  await goto(`/jobs/${id}/traces`, "rendezvous g");
  await page.locator("#tab-panel select").selectOption("0");
  const root = page.getByRole("button", { name: "job start" });
  await root.waitFor();
  await root.focus();
  await page.keyboard.press("Enter");
  await page.locator("section.attributes").getByText("regroup.job.id").waitFor();
  assert.ok(await page.locator(".waterfall span.worker").count() >= 3, "there is no span of the workers");
  clean();
});

test("the keyboard is enough", async () => {
  await page.setViewportSize({ width: 1280, height: 800 });
  await goto("/jobs", "mnist");
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.type), "search");
  await page.keyboard.type("nothing has this name");
  await page.getByText("No job matches").waitFor();
  assert.match(page.url(), /q=nothing/);
  await goto(`/jobs/${id}`, "Timeline");
  await page.locator("#tab-timeline").focus();
  await page.keyboard.press("ArrowRight");
  await page.locator("#tab-metrics[aria-selected=true]").waitFor();
  await goto(`/jobs/${id}/timeline`, "Timeline");
  const bars = page.locator("svg.gantt rect.training");
  await bars.first().waitFor();
  await page.locator("svg.gantt").focus();
  const box = () => page.locator("svg.gantt text").allTextContents();
  const whole = await box();
  await page.keyboard.press("+");
  await page.keyboard.press("+");
  await eventually("another range", async () => (await box()).join() !== whole.join(), 3000);
  clean();
});

test("a stop asks once more, and then is shown", async () => {
  await goto(`/jobs/${id}`, "Timeline");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Really stop it?" }).click();
  await page.locator(".head .badge", { hasText: "stopped" }).waitFor({ timeout: 20000 });
  clean();
});

test("what a program prints is shown, and is no part of the page", async () => {
  const print = String.raw`printf '\033[31mred\033[0m \033[38;2;9;200;30mgreen\033[0m <b id=bold>plain</b> \033]8;;https://evil.example\033\\link\033]8;;\033\\ end\n'; exit 3`;
  const broken = cluster.submit("--workers", "1", "--max-restarts", "0", "--name", "broken", "--", "sh", "-c", print);
  await goto(`/jobs/${broken}`, "failed");
  await page.getByText("First error").waitFor();
  await goto(`/jobs/${broken}/logs`, "plain");
  const row = page.locator(".log .row", { hasText: "plain" }).first();
  assert.match(await row.textContent(), /red green <b id=bold>plain<\/b>/);
  assert.equal(await row.locator(".ansi-red-fg").textContent(), "red");
  assert.equal(await page.locator("#bold, .log a, .log [style*=color]").count(), 0);
  await goto("/overview", broken);
  await shot("failed-overview");
  clean();
});
