// Every job; the filters are in the address, so that they can be sent to others.
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { address, change } from "./address.js";
import { listen, may, useNow, useResource } from "./api.js";
import { Command } from "./copy.js";
import { number, span, since } from "./format.js";
import { Badge, Problem, Table } from "./parts.js";
import { heads, sorted } from "./sorting.js";

const states = ["", "active", "waiting", "running", "finishing", "stopping", "succeeded", "failed", "stopped"];

// useSteps has the newest step of each job, which is sent more often than it is stored.
export function useSteps() {
  const [steps, set] = useState({});
  useEffect(() => listen(({ kind, data }) => { if (kind === "progress") set((s) => ({ ...s, [data.job]: data })); }), []);
  return steps;
}

const columns = {
  Job: (j) => j.job, State: (j) => j.state, Workers: (j) => (j.ended ? j.world : j.training), Generation: (j) => j.generation, Step: (j) => j.step,
  Incidents: (j) => j.incidents, Age: (j) => since(j.submitted), Command: (j) => j.command.join(" "),
};

export function Jobs({ query }) {
  const state = query.get("state") || "", q = query.get("q") || "";
  const path = "/api/v1/job-rows?" + new URLSearchParams({ limit: 200, ...(state && { state }), ...(q && { q }) });
  const [list, error] = useResource(path, ({ kind, data }) => kind === "change" && data.kind === "job", 300);
  const steps = useSteps();
  useNow();
  const head = heads(["Job", "State", "Workers", { num: "Generation" }, { num: "Step" }, { num: "Incidents" }, "Age", "Command"], query, columns);
  return html`<div class="head"><h1>Jobs</h1>${may("submitter") && html`<span class="actions"><a class="button" href="#/submit">Submit a job</a></span>`}</div>
    <div class="tools" role="search">
      <label>Search <input type="search" value=${q} placeholder="id or command  ( / )" onInput=${(e) => change({ q: e.target.value })} /></label>
      <label>State <select value=${state} onChange=${(e) => change({ state: e.target.value })}>${states.map((s) => html`<option value=${s} selected=${s === state}>${s || "all"}</option>`)}</select></label>
    </div><${Problem} error=${error} />
    <section class="panel">${list && list.jobs.length === 0 ? html`<p class="empty">${q || state ? "No job matches." : html`No jobs yet. Start one: <${Command} text="regroup submit --workers 2 -- python train.py" />`}</p>` : html`
      <${Table} name="Jobs" head=${head}>
        ${sorted(list?.jobs || [], query, columns).map((j) => html`<tr key=${j.job}>
          <td class="tight"><a href=${address(["jobs", j.job])}>${j.job}</a></td>
          <td><${Badge} state=${j.state} /></td>
          <td>${j.ended ? j.world || "none" : j.training} of ${j.workers.min === j.workers.max ? j.workers.max : `${j.workers.min} to ${j.workers.max}`}</td>
          <td class="num">${j.generation || "-"}</td>
          <td class="num">${number(Math.max(j.step, j.ended ? 0 : steps[j.job]?.step || 0))}</td>
          <td class="num">${j.incidents}</td>
          <td class="tight">${span(since(j.submitted))}</td>
          <td class="mono wide">${j.command.join(" ")}${j.reason && j.state !== "running" && html`<div class="soft">${j.reason}</div>`}</td></tr>`)}<//>`}
      ${list?.more > 0 && html`<p class="empty">${list.more} older jobs are left out: search for them.</p>`}</section>`;
}
