// What needs a person, first.
import { html } from "htm/preact";
import { useNow, useResource } from "./api.js";
import { ago, causeText, percent, plural, span } from "./format.js";
import { Card, Problem } from "./parts.js";

const marks = { error: "bad", warning: "warn", notice: "" };

export function Overview() {
  const [o, error] = useResource("/api/v1/overview", ({ kind, data }) => kind === "change" && data.kind !== "facts", 300);
  useNow();
  if (!o) return html`<h1>Overview</h1><${Problem} error=${error} />`;
  const active = (o.jobs.running || 0) + (o.jobs.waiting || 0) + (o.jobs.finishing || 0) + (o.jobs.stopping || 0);
  return html`<div class="head"><h1>Overview</h1></div><${Problem} error=${error} />
    <div class="cards">
      <${Card} name="jobs" value=${active} note=${["running", "waiting", "finishing", "stopping"].filter((s) => o.jobs[s]).map((s) => `${o.jobs[s]} ${s}`).join(", ") || "none active"} />
      <${Card} name="ended" value=${(o.jobs.succeeded || 0) + (o.jobs.failed || 0) + (o.jobs.stopped || 0)} note=${["succeeded", "failed", "stopped"].filter((s) => o.jobs[s]).map((s) => `${o.jobs[s]} ${s}`).join(", ") || "none"} />
      <${Card} name="slots used" value=${`${o.slots.used} of ${o.slots.all}`} note=${`${o.slots.free} free, ${plural(o.queue, "job")} in the queue`} />
      <${Card} name="goodput now" value=${percent(o.goodput)} note="observed time that brought jobs forward" />
    </div>
    <div class="columns">
      <section class="panel" aria-labelledby="attention"><h2 id="attention">What needs you</h2>
        ${o.attention.length === 0 ? html`<p class="empty">Nothing: every job trains, every node is well.</p>` : html`<ul class="plain">${o.attention.map((a) => html`<li>
          <span class="badge ${marks[a.severity]}">${a.severity}</span>
          ${a.job && html`<a href="#/jobs/${a.job}">${a.job}</a>`}${a.node && html`<a href="#/nodes">${a.node}</a>`}
          <span>${a.text}</span>${a.since && html`<span class="when">${ago(a.since)}</span>`}</li>`)}</ul>`}</section>
      <section class="panel" aria-labelledby="incidents"><h2 id="incidents">Last incidents</h2>
        ${o.incidents.length === 0 ? html`<p class="empty">None.</p>` : html`<ul class="plain">${o.incidents.slice(0, 10).map((i) => html`<li>
          <span class="badge ${i.open || !i.incident.to ? "bad" : "good"}">${i.open ? "open" : i.incident.to ? span(i.incident.total_ms) : "job ended"}</span>
          <a href="#/jobs/${i.job}">${i.job}</a><span>${causeText(i.incident.cause)}</span>${i.time && html`<span class="when">${ago(i.time)}</span>`}</li>`)}</ul>`}</section>
    </div>
    <section class="panel" aria-labelledby="capacity"><h2 id="capacity">Capacity</h2>
      <div class="bar" role="img" aria-label="${o.slots.used} of ${o.slots.all} slots are used"><span style=${{ width: `${o.slots.all ? (100 * o.slots.used) / o.slots.all : 0}%` }}></span></div>
      <p class="empty">${o.slots.all === 0 ? "No node is ready: start an agent with regroup agent, or regroup up." : `${o.slots.used} of ${o.slots.all} slots are used, ${o.slots.usable} may get work`}</p></section>`;
}
