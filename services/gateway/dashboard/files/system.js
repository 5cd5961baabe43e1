// The control plane itself.
import { html } from "htm/preact";
import { useNow, useResource } from "./api.js";
import { ago, bytes, number, percent, span } from "./format.js";
import { Badge, Problem, Table } from "./parts.js";

const observed = 5000; // the gateway asks the brokers so often

// state is how far a copy is; one that lacks something for a moment is normal.
const state = (r) => (r.offline ? "offline" : r.current ? "current" : "behind");

function Brokers({ report }) {
  return html`<section class="panel"><h2>Brokers</h2>
    ${report.brokers.length === 0 ? html`<p class="empty">${report.at ? "No stream has said which brokers have a copy of it." : "They were not asked yet."}</p>` : html`
      <${Table} name="Brokers" head=${["Broker", "State", { num: "Leads" }, { num: "Copies" }, { num: "Not current" }, { num: "Lag" }, "Heard"]}>${report.brokers.map((b) => html`<tr key=${b.broker}>
        <td>${b.broker}${b.broker === report.connected && html` <span class="soft">this gateway's</span>`}</td><td><${Badge} state=${b.state} /></td>
        <td class="num">${b.leads}</td><td class="num">${b.copies}</td><td class="num">${b.not_current}</td><td class="num" title=${b.lag_of || null}>${number(b.lag)}</td>
        <td>${b.seen_ms === null ? "never" : b.leads > 0 ? "answers" : `${span(b.seen_ms)} before`}</td></tr>`)}<//>`}
    <p class="soft">${report.at && `observed ${ago(report.at)}`}</p></section>`;
}

function Streams({ streams }) {
  const copies = (s) => s.replicas.filter((r) => !r.leader).map((r) => html`<div>${r.broker} <${Badge} state=${state(r)} />${r.lag > 0 && html` <span class="soft">lacks ${number(r.lag)}</span>`}</div>`);
  return html`<section class="panel"><h2>Streams</h2>
    <${Table} name="Streams" head=${["Stream", "Leader", "Other copies", { num: "Messages" }, { num: "Stored" }, { num: "Of its limit" }, "When full"]}>${streams.map((s) => html`<tr key=${s.stream}><td class="mono">${s.stream}</td>
      ${s.unknown ? html`<td><${Badge} state="unknown" /></td><td colspan="5">${s.unknown}</td>` : html`<td>${s.leader || "none"}</td><td>${copies(s).length ? copies(s) : "none"}</td>
        <td class="num">${number(s.messages)}</td><td class="num">${bytes(s.bytes)}</td><td class="num">${s.max_bytes ? `${percent(s.bytes / s.max_bytes)} of ${bytes(s.max_bytes)}` : "no limit"}</td><td>${s.refuses ? "refuses" : "drops the oldest"}</td>`}</tr>`)}<//></section>`;
}

function Backlogs({ streams }) {
  const all = streams.flatMap((s) => s.consumers.map((c) => ({ stream: s.stream, ...c })));
  return html`<section class="panel"><h2>What services have to handle</h2>
    ${all.length === 0 ? html`<p class="empty">No service has a consumer yet, or none is known.</p>` : html`<${Table} name="Backlogs" head=${["Service", "Stream", "Consumer", { num: "Waiting" }, { num: "Not settled" }, { num: "Delivered again" }]}>${all.map((c) => html`<tr key=${c.stream + c.consumer}>
      <td>${c.service}</td><td class="mono">${c.stream}</td><td class="mono">${c.consumer}</td>
      ${c.unknown ? html`<td colspan="3">${c.unknown}</td>` : html`<td class="num">${number(c.pending)}</td><td class="num">${number(c.ack_pending)}</td><td class="num">${number(c.redelivered)}</td>`}</tr>`)}<//>`}</section>`;
}

export function System() {
  const [s, error] = useResource("/api/v1/system", ({ kind, data }) => kind === "fact" || (kind === "change" && data.kind === "brokers"), 1000, observed);
  useNow();
  if (!s) return html`<h1>System</h1><${Problem} error=${error} />`;
  return html`<div class="head"><h1>System</h1></div><${Problem} error=${error} />
    <div class="columns"><section class="panel"><h2>Services</h2>
      <${Table} name="Services" head=${["Service", "State"]}>${s.services.map((x) => html`<tr key=${x.name}><td>${x.name}</td><td><${Badge} state=${x.answers ? "ready" : "lost"} /></td></tr>`)}<//></section>
    <section class="panel"><h2>This gateway</h2><dl class="pairs">
      <dt>version</dt><dd>${s.version}</dd><dt>Go</dt><dd>${s.go}</dd><dt>NATS</dt><dd>${s.connected ? "connected" : "not connected"}</dd>
      <dt>ready</dt><dd>${s.ready}</dd><dt>newest fact</dt><dd>${number(s.facts)}</dd><dt>open streams</dt><dd>${s.streams}</dd>
      <dt>for programs</dt><dd><a href="/openapi.json">openapi.json</a>, <a href="/metrics">metrics</a></dd></dl></section></div>
    <${Brokers} report=${s.brokers} />
    ${s.brokers.streams.length > 0 && html`<${Streams} streams=${s.brokers.streams} /><${Backlogs} streams=${s.brokers.streams} />`}
    <section class="panel"><h2>Facts since this gateway began</h2>
      ${Object.keys(s.counts).length === 0 ? html`<p class="empty">None yet.</p>` : html`<${Table} name="Facts" head=${["Type", { num: "Number" }]}>${Object.entries(s.counts).sort().map(([t, n]) => html`<tr key=${t}><td class="mono">${t}</td><td class="num">${number(n)}</td></tr>`)}<//>`}</section>`;
}
