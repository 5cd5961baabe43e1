// A control plane with three nodes in processes of this machine, a job on it, and a browser.
import { spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const root = new URL("../..", import.meta.url).pathname;
const regroup = join(root, "bin/regroup");

// flags keep the browser from anything but the pages.
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

// eventually waits until fn gives something that is not false.
export async function eventually(what, fn, within = 20000) {
  const until = Date.now() + within;
  let last;
  while (Date.now() < until) {
    try {
      const value = await fn();
      if (value) return value;
    } catch (error) { last = error; }
    await new Promise((done) => setTimeout(done, 20));
  }
  throw new Error(`${what}: not within ${within} ms${last ? ` (${last.message})` : ""}`);
}

export class Cluster {
  constructor() {
    this.dir = mkdtempSync(join(tmpdir(), "regroup-dashboard-"));
    this.env = { ...process.env, REGROUP_STATE_DIR: this.dir, REGROUP_GATEWAY_LISTEN: "127.0.0.1:0", REGROUP_AGENT_NODE: "node-a", REGROUP_SECRET: randomUUID() };
    this.children = [];
  }

  // start runs everything with one node, and two agents more, or without any; the result is the link
  // that it prints.
  async start(agents = ["node-b", "node-c"]) {
    const up = this.run(["up", "--dashboard", ...(agents.length ? ["--slots", "2"] : ["--no-agent"])]);
    let said = "";
    up.stderr.on("data", (b) => { said += b; });
    this.link = await eventually("a link", () => said.match(/dashboard: (http\S+)/)?.[1]);
    await eventually("the server", () => /regroup is up: (\S+)/.test(said));
    this.server = said.match(/regroup is up: (\S+)/)[1];
    for (const node of agents) {
      this.run(["agent", "--server", this.server, "--state-dir", join(this.dir, node)], { REGROUP_AGENT_NODE: node, REGROUP_AGENT_SLOTS: "1", REGROUP_AGENT_ADVERTISE: "127.0.0.1" });
    }
    this.origin = new URL(this.link).origin;
    return this.link;
  }

  run(args, env = {}) {
    const child = spawn(regroup, args, { env: { ...this.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    child.log = "";
    child.stderr.on("data", (b) => { child.log += b; });
    this.children.push(child);
    return child;
  }

  // ask is one command that ends.
  ask(...args) {
    const r = spawnSync(regroup, args, { env: this.env, encoding: "utf8" });
    if (r.status !== 0) throw new Error(`regroup ${args.join(" ")}: ${r.stderr}`);
    return r.stdout.trim();
  }

  submit(...args) { return this.ask("submit", ...args); }

  job(id) { return JSON.parse(this.ask("status", id, "-o", "json")); }

  async stop() {
    await Promise.all(this.children.reverse().map((child) => new Promise((done) => {
      if (child.exitCode !== null) { done(); return; }
      child.on("exit", done);
      child.kill("SIGTERM");
      setTimeout(() => child.kill("SIGKILL"), 8000).unref();
    })));
    rmSync(this.dir, { recursive: true, force: true });
  }
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

// findings are what axe takes for serious in a page.
export function findings(page) {
  return page.evaluate(async (source) => {
    if (!window.axe) (0, eval)(source);
    return (await window.axe.run(document, { resultTypes: ["violations"] })).violations
      .filter((v) => ["serious", "critical"].includes(v.impact))
      .map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(" ")).join(", ")}`);
  }, axe);
}

// sideways is by how many columns a page is wider than its window, beside the scroll bar.
export const sideways = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

// browse opens a browser; errors collects what its consoles report. With scrollBars pages have scroll
// bars that take room, as on most desktops.
export async function browse(errors, { scrollBars = false, ...options } = {}) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: flags, ignoreDefaultArgs: scrollBars ? ["--hide-scrollbars"] : [] });
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.on("console", (m) => { if (["error", "warning"].includes(m.type())) errors.push(`${page.url()}: ${m.text()}`); });
  page.on("pageerror", (e) => errors.push(`${page.url()}: ${e.message}`));
  return { browser, context, page };
}
