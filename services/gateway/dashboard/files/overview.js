// The control room: what needs a person, every job by time, and what each node has left.
import { html } from "htm/preact";
import { useState } from "preact/hooks";
import { address, change } from "./address.js";
import { useNow, useResource } from "./api.js";
import { Command } from "./copy.js";
import { ago, causeText, percent, plural, span } from "./format.js";
import { Badge, Card, Problem } from "./parts.js";
import { Strips } from "./strips.js";

const marks = { error: "bad", warning: "warn", notice: "" };

// What a person has dismissed stays so in this browser, until it is said of another time.
const store = "regroup-dismissed";
const key = (a) => [a.job, a.node, a.text, a.since].join(" ");
function dismissed() {
  try { return JSON.parse(localStorage.getItem(store)) || []; } catch { return []; }
}

function Attention({ all }) {
  const [gone, set] = useState(dismissed);
  const keep = (list) => { localStorage.setItem(store, JSON.stringify(list.slice(-200))); set(list); };
  const shown = all.filter((a) => !gone.includes(key(a))), hidden = all.length - shown.length;
  return html`<section class="panel" aria-labelledby="attention"><h2 id="attention">What needs you</h2>
    ${shown.length === 0 ? html`<p class="empty">Nothing: every job trains, every node is well.</p>` : html`<ul class="plain">${shown.map((a) => html`<li key=${key(a)}>
      <span class="badge ${marks[a.severity]}">${a.severity}</span>
      ${a.job && html`<a href=${address(["jobs", a.job])}>${a.job}</a>`}${a.node && html`<a href=${address(["nodes"], { q: a.node })}>${a.node}</a>`}
      <span class="text">${a.text}</span><span class="when">${a.since && ago(a.since)} <button class="small" aria-label="Dismiss: ${a.text}" onClick=${() => keep([...gone, key(a)])}>Dismiss</button></span></li>`)}</ul>`}
    ${hidden > 0 && html`<p class="soft">${hidden} dismissed in this browser. <button class="link" onClick=${() => keep([])}>Show all</button></p>`}</section>`;
}

function Capacity({ o }) {
  return html`<section class="panel" aria-labelledby="capacity"><h2 id="capacity">Capacity by node</h2>
    ${o.nodes.length === 0 ? html`<p class="empty">No node has joined. Start an agent: <${Command} text="regroup agent --slots 8" /></p>` : html`
      <p class="soft">${o.slots.used} of ${o.slots.all} slots are used, ${o.slots.usable} may get work</p>
      <ul class="capacity">${o.nodes.map((n) => html`<li key=${n.node}><a href=${address(["nodes"], { q: n.node })}>${n.node}</a>
        <span class="slots" role="img" aria-label=${`${n.used} of ${plural(n.slots, "slot")} used`}>${n.slots <= 16
          ? [...Array(n.slots)].map((_, i) => html`<span key=${i} class=${`slot ${n.state === "ready" ? (i < n.used ? "used" : i < n.used + n.usable ? "free" : "closed") : "unknown"}`}></span>`)
          : html`<span class="bar"><span style=${{ width: `${(100 * n.used) / n.slots}%` }}></span></span>`}</span>
        <span class="soft">${n.used} of ${n.slots}${n.gpus ? `, ${plural(n.gpus, "GPU")}` : ""}</span>${n.state !== "ready" && html` <${Badge} state=${n.state} />`}</li>`)}</ul>`}</section>`;
}

export function Overview({ query }) {
  const [o, error] = useResource("/api/v1/overview", ({ kind, data }) => kind === "change" && data.kind !== "facts", 300);
  useNow();
  if (!o) return html`<h1>Overview</h1><${Problem} error=${error} />`;
  const active = (o.jobs.running || 0) + (o.jobs.waiting || 0) + (o.jobs.finishing || 0) + (o.jobs.stopping || 0);
  return html`<div class="head"><h1>Overview</h1></div><${Problem} error=${error} />
    <div class="cards">
      <${Card} name="jobs" value=${active} note=${["running", "waiting", "finishing", "stopping"].filter((s) => o.jobs[s]).map((s) => `${o.jobs[s]} ${s}`).join(", ") || "none active"} />
      <${Card} name="ended" value=${(o.jobs.succeeded || 0) + (o.jobs.failed || 0) + (o.jobs.stopped || 0)} note=${["succeeded", "failed", "stopped"].filter((s) => o.jobs[s]).map((s) => `${o.jobs[s]} ${s}`).join(", ") || "none"} />
      <${Card} name="slots used" value=${`${o.slots.used} of ${o.slots.all}`} note=${`${o.slots.free} free, ${o.slots.all > o.slots.used + o.slots.free ? `${o.slots.all - o.slots.used - o.slots.free} kept out, ` : ""}${plural(o.queue, "job")} in the queue`} />
      <${Card} name="goodput now" value=${o.goodput === null ? "unknown" : percent(o.goodput)} note="observed time that brought jobs forward" />
    </div>
    <${Attention} all=${o.attention} />
    <${Strips} strips=${o.strips} chosen=${query.get("last")} choose=${(last) => change({ last })} />
    <div class="columns">
      <${Capacity} o=${o} />
      <section class="panel" aria-labelledby="incidents"><h2 id="incidents">Last incidents</h2>
        ${o.incidents.length === 0 ? html`<p class="empty">None.</p>` : html`<ul class="plain">${o.incidents.slice(0, 10).map((i) => html`<li key=${`${i.job} ${i.incident.incident}`}>
          <span class="badge ${i.open || !i.incident.to ? "bad" : "good"}">${i.open ? "open" : i.incident.to ? span(i.incident.total_ms) : "job ended"}</span>
          <a href=${address(["jobs", i.job])}>${i.job}</a><span class="text">${causeText(i.incident.cause)}</span>${i.time && html`<span class="when">${ago(i.time)}</span>`}</li>`)}</ul>`}</section>
    </div>`;
}
