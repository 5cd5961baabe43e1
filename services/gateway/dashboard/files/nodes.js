// Every node: its state, its slots and what runs on it.
import { html } from "htm/preact";
import { address, change } from "./address.js";
import { may, request, useNow, useResource } from "./api.js";
import { Command } from "./copy.js";
import { ago, gpus, machine, now, since, span, spares } from "./format.js";
import { Action, Badge, Problem } from "./parts.js";
import { heads, sorted } from "./sorting.js";
import { LongTable } from "./window.js";

function conditions(n) {
  const until = (q) => `${span(Date.parse(q.until) - now())} more: ${q.reason}`;
  return [
    n.draining && "drains", n.excluded && `may not be used: ${n.excluded}`,
    n.quarantine && `quarantined ${until(n.quarantine)}`,
    ...(n.quarantined_slots || []).map((b) => `slot ${b.slot} quarantined ${until(b)}`), n.reason,
  ].filter(Boolean);
}

const columns = { Node: (n) => n.node, State: (n) => n.state, Slots: (n) => n.used, Jobs: (n) => n.jobs.length, Address: (n) => n.address, Since: (n) => since(n.since) };
const gone = (n) => n.state === "left" || (n.state === "lost" && since(n.since) > 3600e3);

export function Nodes({ query }) {
  const [list, error] = useResource("/api/v1/nodes", ({ kind, data }) => kind === "change" && (data.kind === "node" || data.kind === "pool"), 200, 5000);
  useNow();
  const q = query.get("q") || "";
  const matching = sorted((list?.nodes || []).filter((n) => !q || `${n.node} ${n.state} ${n.address} ${n.jobs.map((j) => j.job).join(" ")}`.includes(q)), query, columns);
  const here = matching.filter((n) => !gone(n)), left = matching.filter(gone);
  return html`<div class="head"><h1>Nodes</h1></div><${Problem} error=${error} />
    <div class="tools" role="search"><label>Search <input type="search" value=${q} placeholder="name, state, address or job  ( / )" onInput=${(e) => change({ q: e.target.value })} /></label>
      <span class="soft" role="status">${list ? `${here.length} here, ${left.length} left or lost for over an hour` : ""}</span></div>
    <section class="panel">${list && list.nodes.length === 0 ? html`<p class="empty">No agent has joined. Start one: <${Command} text="regroup agent --slots 8" /></p>`
      : here.length === 0 ? html`<p class="empty">${q ? "No node matches." : "No node is here."}</p>` : html`<${Table} name="Nodes" nodes=${here} query=${query} />`}</section>
    ${left.length > 0 && html`<details class="panel"><summary>${left.length} that left, or were lost over an hour ago</summary><${Table} name="Nodes that left" nodes=${left} query=${query} /></details>`}`;
}

function Table({ name, nodes, query }) {
  const act = (node, verb, body) => () => request("POST", `/api/v1/nodes/${node}/${verb}`, body);
  const head = heads(["Node", "State", "Slots", "Jobs", "Machine", "GPUs", "Address", "Since", "Conditions", "Actions"], query, columns);
  return html`<${LongTable} name=${name} head=${head} items=${nodes} row=${(n) => html`<tr key=${n.node}><td class="tight">${n.node}</td><td><${Badge} state=${n.state} /></td>
      <td class="wide"><div class="bar" role="img" aria-label="${n.used} of ${n.slots} slots are used"><span style=${{ width: `${n.slots ? (100 * n.used) / n.slots : 0}%` }}></span></div><span class="soft">${n.used} of ${n.slots} used</span></td>
      <td>${n.jobs.map((j) => html`<div><a href=${address(["jobs", j.job])}>${j.job}</a> <span class="soft">${j.slots}</span>${spares(n, j.job) && html` <span class="soft" title=${n.spares.find((s) => s.job === j.job).problem || ""}>${spares(n, j.job)}</span>`}</div>`)}</td>
      <td class="tight">${machine(n).map((c) => html`<div>${c}</div>`)}</td><td class="tight">${gpus(n).map((c, i) => html`<div class=${i ? "soft" : ""}>${c}</div>`)}</td>
      <td class="mono">${n.address}</td><td class="tight">${ago(n.since)}</td><td class="wide" title=${conditions(n).join("; ")}>${conditions(n).map((c) => html`<div>${c}</div>`)}</td>
      <td>${may("operator") && !["lost", "left"].includes(n.state) && html`<span class="tools">
        ${n.draining ? html`<${Action} text="Undo drain" run=${act(n.node, "drain", { undo: true })} />` : html`<${Action} text="Drain" sure="Really drain it?" run=${act(n.node, "drain", { reason: "by the dashboard" })} />`}
        ${n.quarantine || n.quarantined_slots?.length ? html`<${Action} text="Release" run=${act(n.node, "release", {})} />` : html`<${Action} text="Quarantine 10 m" sure="Really quarantine it?" run=${act(n.node, "quarantine", { for: "10m", reason: "by the dashboard" })} />`}</span>`}</td></tr>`} />`;
}
