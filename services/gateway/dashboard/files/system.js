// The control plane itself.
import { html } from "htm/preact";
import { useNow, useResource } from "./api.js";
import { number } from "./format.js";
import { Badge, Problem, Table } from "./parts.js";

export function System() {
  const [s, error] = useResource("/api/v1/system", ({ kind }) => kind === "fact", 1000);
  useNow();
  if (!s) return html`<h1>System</h1><${Problem} error=${error} />`;
  return html`<div class="head"><h1>System</h1></div><${Problem} error=${error} />
    <div class="columns"><section class="panel"><h2>Services</h2>
      <${Table} name="Services" head=${["Service", "State"]}>${s.services.map((x) => html`<tr key=${x.name}><td>${x.name}</td><td><${Badge} state=${x.answers ? "ready" : "lost"} /></td></tr>`)}<//></section>
    <section class="panel"><h2>This gateway</h2><dl class="pairs">
      <dt>version</dt><dd>${s.version}</dd><dt>Go</dt><dd>${s.go}</dd><dt>NATS</dt><dd>${s.connected ? "connected" : "not connected"}</dd>
      <dt>ready</dt><dd>${s.ready}</dd><dt>newest fact</dt><dd>${number(s.facts)}</dd><dt>open streams</dt><dd>${s.streams}</dd>
      <dt>for programs</dt><dd><a href="/openapi.json">openapi.json</a>, <a href="/metrics">metrics</a></dd></dl></section></div>
    <section class="panel"><h2>Facts since this gateway began</h2>
      ${Object.keys(s.counts).length === 0 ? html`<p class="empty">None yet.</p>` : html`<${Table} name="Facts" head=${["Type", { num: "Number" }]}>${Object.entries(s.counts).sort().map(([t, n]) => html`<tr key=${t}><td class="mono">${t}</td><td class="num">${number(n)}</td></tr>`)}<//>`}</section>`;
}
