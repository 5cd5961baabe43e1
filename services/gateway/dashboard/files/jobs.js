// Every job; the filters are in the address, so that they can be sent to others.
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { listen, useNow, useResource } from "./api.js";
import { number, span, since } from "./format.js";
import { Badge, Problem, Table } from "./parts.js";

const states = ["", "active", "waiting", "running", "finishing", "stopping", "succeeded", "failed", "stopped"];

// useSteps has the newest step of each job, which is sent more often than it is stored.
export function useSteps() {
  const [steps, set] = useState({});
  useEffect(() => listen(({ kind, data }) => { if (kind === "progress") set((s) => ({ ...s, [data.job]: data })); }), []);
  return steps;
}

export function Jobs({ query }) {
  const state = query.get("state") || "", q = query.get("q") || "";
  const path = "/api/v1/job-rows?" + new URLSearchParams({ limit: 200, ...(state && { state }), ...(q && { q }) });
  const [list, error] = useResource(path, ({ kind, data }) => kind === "change" && data.kind === "job", 300);
  const steps = useSteps();
  useNow();
  const filter = (change) => {
    const next = new URLSearchParams({ ...(state && { state }), ...(q && { q }), ...change });
    for (const [k, v] of [...next]) if (!v) next.delete(k);
    history.replaceState(null, "", "#/jobs" + (next.size ? "?" + next : ""));
    dispatchEvent(new HashChangeEvent("hashchange"));
  };
  return html`<div class="head"><h1>Jobs</h1></div>
    <div class="tools" role="search">
      <label>Search <input type="search" value=${q} placeholder="id or command  ( / )" onInput=${(e) => filter({ q: e.target.value })} /></label>
      <label>State <select value=${state} onChange=${(e) => filter({ state: e.target.value })}>${states.map((s) => html`<option value=${s} selected=${s === state}>${s || "all"}</option>`)}</select></label>
    </div><${Problem} error=${error} />
    <section class="panel">${list && list.jobs.length === 0 ? html`<p class="empty">${q || state ? "No job matches." : html`No jobs yet: start one with <code>regroup submit -- CMD</code>.`}</p>` : html`
      <${Table} name="Jobs" head=${["Job", "State", "Workers", { num: "Generation" }, { num: "Step" }, { num: "Incidents" }, "Age", "Command"]}>
        ${list?.jobs.map((j) => html`<tr key=${j.job}>
          <td class="tight"><a href="#/jobs/${j.job}">${j.job}</a></td>
          <td><${Badge} state=${j.state} /></td>
          <td>${j.training} of ${j.workers.min === j.workers.max ? j.workers.max : `${j.workers.min} to ${j.workers.max}`}</td>
          <td class="num">${j.generation || "-"}</td>
          <td class="num">${number(Math.max(j.step, j.ended ? 0 : steps[j.job]?.step || 0))}</td>
          <td class="num">${j.incidents}</td>
          <td class="tight">${span(since(j.submitted))}</td>
          <td class="mono wide">${j.command.join(" ")}${j.reason && j.state !== "running" && html`<div class="soft">${j.reason}</div>`}</td></tr>`)}<//>`}
      ${list?.more > 0 && html`<p class="empty">${list.more} older jobs are left out: search for them.</p>`}</section>`;
}
