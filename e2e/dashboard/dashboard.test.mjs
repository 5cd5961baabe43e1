// The dashboard in a browser, on a cluster of three nodes whose worker is killed.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { browse, Cluster, eventually, findings, root, sideways } from "./cluster.mjs";

const shots = process.env.SHOTS;
const outage = 1000 * Number(process.env.OUTAGE || 0); // milliseconds for which the server is frozen, at least
const cluster = new Cluster();
const errors = [];
let browser, page, id;

before(async () => {
  if (shots) mkdirSync(shots, { recursive: true });
  await cluster.start();
  ({ browser, page } = await browse(errors, { scrollBars: true }));
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

test("workers and nodes are shown with what they use, and ranks with their pace", async () => {
  await goto(`/jobs/${id}/workers`, "Own time of a step");
  const cells = () => page.$$eval("table tbody tr", (rows) => rows.map((r) => Object.fromEntries([...r.cells].map((c) => [c.dataset.title, c.textContent]))));
  await eventually("each worker has a step, its time, processors and memory", async () =>
    (await cells()).filter((c) => Number(c.Step.replace(/\s/g, "")) > 50 && /^[\d.]+m?s$/.test(c["A step"]) && /^[\d.]+m?s$/.test(c["Own part"]) && /^\d/.test(c.Processors) && /(KiB|MiB)$/.test(c.Memory)).length === 3, 60000);
  const ink = await page.$eval(".pace canvas", (c) => c.getContext("2d").getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v > 0).length);
  assert.ok(ink > 100, `${ink} points are drawn`);
  await goto("/nodes", "node-a");
  await eventually("each node has its processors and memory", async () => (await cells()).filter((c) => /^[\d.]+ of \d+ processors?[\d.]+ GiB of [\d.]+ GiB$/.test(c.Machine)).length === 3, 60000);
  clean();
});

test("what the job can lose is on its page", async () => {
  await goto(`/jobs/${id}`, "Timeline");
  const value = page.locator(".card", { hasText: "losses survived" }).locator(".value");
  await eventually("two losses are survived", async () => (await value.textContent()) === "2");
  await page.getByText(/^Newest whole commit: step [\d ]+, .+ old, survives the loss of any 2 workers, .+; reported (.+ ago|just now)\.$/).waitFor();
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
  ["workers", "/workers", "node-b"], ["samples", "/samples", "Epoch"], ["traces", "/traces", "rendezvous g"], ["death", "/traces?incident=1", "detect worker.exited"], ["start", "/traces?incident=0", "worker process"], ["events", "/events", "round.sealed"], ["spec", "/spec", "every default"], ["steps", "/metrics?x=step&y=log&smooth=0.6", "steps/s"], ["submit", "/submit", "Specification, in JSON"], ["nodes", "/nodes", "node-c"], ["system", "/system", "registry"],
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
  for (const width of [1440, 768, 390, 360]) {
    test(`every page is clean, ${scheme}, ${width} columns`, async () => {
      await page.emulateMedia({ colorScheme: scheme });
      await page.setViewportSize({ width, height: 800 });
      for (const [name, path, text] of all) {
        const hash = ["overview", "jobs", "submit", "nodes", "system"].includes(name) ? path : `/jobs/${id}${path}`;
        await goto(hash, text);
        if (["death", "start"].includes(name)) await page.locator("td", { hasText: "error" }).first().waitFor(); // of the worker that was killed
        assert.equal(await sideways(page), 0, `${name} is too wide by so many columns`);
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
  const places = await page.$$eval(".scroll tbody tr", (rows) => rows.filter((r) => r.cells[0].textContent === "first step").map((r) => r.cells[1].textContent));
  assert.ok(places.length >= 2 && places.every((p) => /^r\d on node-[abc]\/\d$/.test(p)) && new Set(places).size === places.length, places.join());
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
  const ages = () => page.evaluate(() => [document.querySelector(".head").textContent.match(/ended (\S+) ago/)?.[1], document.querySelector(".explain").textContent.match(/ stopped (\S+) ago/)?.[1]]);
  const [first] = await eventually("both ages are there", async () => {
    const [head, sentence] = await ages();
    return head && head === sentence && [head];
  });
  await page.locator(".head").getByText("3 of 2-3 workers last").waitFor();
  await eventually("both go on, as one", async () => {
    const [head, sentence] = await ages();
    return head === sentence && head !== first;
  });
  await goto("/jobs", id);
  assert.equal(await page.locator("tr", { hasText: id }).locator("td[data-title=Workers]").textContent(), "3 of 2 to 3");
  clean();
});

test("an address without its # leads to its page", async () => {
  await page.goto(`${cluster.origin}/jobs/${id}/logs?rank=0`);
  await page.getByLabel("Search").waitFor();
  assert.equal(page.url(), `${cluster.origin}/#/jobs/${id}/logs?rank=0`);
  clean();
});

test("a failed job opens on its traceback, which links to its output", async () => {
  const lost = cluster.submit("--workers", "1", "--max-restarts", "0", "--name", "lost", "--", "python3", "-c", "print('before', flush=True)\nraise ValueError('the loss is not a number')");
  await goto(`/jobs/${lost}`, "First error");
  await page.getByText("ValueError: the loss is not a number").first().waitFor();
  assert.match(await page.locator("pre.traceback").textContent(), /Traceback .*line 2, in <module>/s);
  await page.getByRole("link", { name: "its output at that second" }).click();
  await page.locator(".log .row.near", { hasText: "Traceback" }).waitFor();
  assert.match(page.url(), /\/logs\?at=\d+&rank=0$/);
  clean();
});

test("events say what the command line says, and progress is hidden", async () => {
  await goto(`/jobs/${id}/events`, "round.sealed");
  const texts = () => page.locator("li[data-event] summary").allTextContents();
  assert.ok((await texts()).some((t) => /round\.sealed\s+g\d+ has \d workers/.test(t)), (await texts()).join("\n"));
  assert.ok(!(await texts()).some((t) => t.includes("job.progressed")));
  await page.getByLabel("progress").check();
  await eventually("progress is shown", async () => (await texts()).some((t) => t.includes("job.progressed")));
  await page.getByRole("button", { name: "incident", exact: true }).click();
  await eventually("only incidents", async () => (await texts()).every((t) => t.includes("incident.")));
  assert.match(page.url(), /progress=1&family=incident/);
  clean();
});

test("a time that was chosen is in the address, for every tab", async () => {
  await goto(`/jobs/${id}/timeline`, "Timeline");
  await page.locator("li[data-incident]", { hasText: "SIGKILL" }).first().getByRole("link", { name: "timeline" }).click();
  await page.locator("svg.gantt rect.incident:not(.planned)").first().waitFor();
  assert.match(page.url(), /from=\d+&to=\d+/);
  const range = new URLSearchParams(page.url().split("?")[1]);
  await page.locator("#tab-metrics").click();
  await page.getByRole("button", { name: "Whole run" }).waitFor();
  assert.equal(new URLSearchParams(page.url().split("?")[1]).get("from"), range.get("from"));
  await page.getByRole("button", { name: "Whole run" }).click();
  assert.doesNotMatch(page.url(), /from=/);
  await page.locator("#tab-timeline").click();
  await page.locator("svg.gantt rect.training").first().waitFor();
  const chart = await page.locator("svg.gantt").boundingBox(), length = () => {
    const chosen = new URLSearchParams(page.url().split("?")[1]);
    return chosen.has("from") ? chosen.get("to") - chosen.get("from") : Infinity;
  };
  await page.mouse.move(chart.x + chart.width / 2, chart.y + chart.height / 2);
  await page.mouse.wheel(0, -100);
  assert.equal(length(), Infinity, "a wheel without a key zooms, in place of scrolling");
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -100);
  await eventually("a shorter time is shown", () => length() < Infinity);
  const near = length();
  await page.mouse.wheel(0, 100);
  await page.keyboard.up("Control");
  await eventually("a longer time is shown", () => length() > near);
  clean();
});

test("a job can be submitted, with what is wrong with it", async () => {
  await goto("/submit", "Specification, in JSON");
  const spec = page.getByLabel("Specification, in JSON");
  await spec.fill('{"command": ["true"], "workers": {"min": 3, "max": 2}}');
  await page.getByRole("button", { name: "Check" }).click();
  await page.getByRole("alert").getByText("workers").first().waitFor();
  errors.splice(0); // the console reports the refusal
  await spec.fill('{"name": "by-hand", "command": ["true"], "workers": {"min": 1, "max": 1}}');
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByRole("heading", { name: /^by-hand-/ }).waitFor();
  clean();
});

test("what needs a person can be dismissed", async () => {
  await goto("/overview", "What needs you");
  const dismiss = page.getByRole("button", { name: /^Dismiss: failed: / });
  await dismiss.first().waitFor();
  const before = await dismiss.count();
  await dismiss.first().click();
  await eventually("one less", async () => (await dismiss.count()) === before - 1);
  await page.reload();
  await page.getByText("dismissed in this browser").waitFor();
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
  assert.equal(await page.locator("#bold, .log a:not(.who)").count(), 0);
  assert.equal(await row.getByText("green", { exact: true }).evaluate((e) => e.style.color), "rgb(9, 200, 30)");
  await goto("/overview", broken);
  await shot("failed-overview");
  clean();
});

test("what nobody has heard is not painted as known", async () => {
  const quiet = cluster.submit("--recovery", "in-process", "--workers", "1", "--name", "quiet", "--", join(root, "bin/mnist"), "-epochs", "1000", "-step-time", "15ms");
  await eventually("it trains", () => {
    if (cluster.job(quiet).step > 20) return true;
    throw new Error(cluster.ask("explain", quiet));
  }, 60000);
  await goto(`/jobs/${quiet}`, "Timeline");
  await page.locator("svg.gantt rect.training").first().waitFor();
  assert.equal(await page.locator("svg.gantt rect.unobserved").count(), 0);
  const server = cluster.children[0];
  process.kill(server.pid, "SIGSTOP");
  const frozen = Date.now();
  try {
    await page.getByRole("alert").getByText("Not connected").waitFor({ timeout: 20000 });
    await page.getByText(/last heard \d\d:\d\d:\d\d/).waitFor();
    await eventually("the rest of the time is hatched", async () => (await page.locator("svg.gantt rect.unobserved").count()) === 1);
    const width = () => page.locator("svg.gantt rect.unobserved").first().getAttribute("width").then(Number);
    const first = await width();
    await eventually("and grows", async () => (await width()) > first);
    assert.match(await page.locator("main").getAttribute("class"), /quiet/);
    await eventually("the outage is as long as it is to be", () => Date.now() - frozen >= outage, outage + 60000);
    const [hatched, training] = await page.evaluate(() => ["unobserved", "training"].map((c) => [...document.querySelectorAll(`svg.gantt rect.${c}`)].reduce((sum, r) => sum + Number(r.getAttribute("width")), 0)));
    assert.ok(outage < 60000 || hatched > training, `after ${outage} ms ${hatched} are hatched, and ${training} painted as training`);
    for (const [name, path] of [["timeline", `/jobs/${quiet}`], ["overview", "/overview"], ["jobs", "/jobs"], ["nodes", "/nodes"]]) {
      await page.evaluate((hash) => { location.hash = hash; }, path);
      for (const width of [1440, 768, 390]) {
        await page.setViewportSize({ width, height: 800 });
        await page.getByRole("alert").getByText("Not connected").waitFor();
        assert.deepEqual(await findings(page), [], name);
        await shot(`disconnected-${name}-${width}`);
      }
    }
  } finally {
    process.kill(server.pid, "SIGCONT");
  }
  await page.getByText("live", { exact: true }).waitFor({ timeout: 20000 });
  await eventually("no alert", async () => (await page.getByText("Not connected").count()) === 0);
  errors.splice(0); // the console reports the requests that failed
});
