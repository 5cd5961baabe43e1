// One job: what it does now, then a tab for each question about it.
import { html } from "htm/preact";
import { address, around } from "./address.js";
import { may, mayChange, request, useNow, useResource, ofJob } from "./api.js";
import { ago, ended, members, number, old, percent, planned, plural, redundancy, sentence, span, survives } from "./format.js";
import { Action, Badge, Card, extent, IncidentHead, lost, median, Phases, Problem, silence, stepsLost, Table } from "./parts.js";
import { FirstError } from "./failure.js";
import { useSteps } from "./jobs.js";
import { Gantt } from "./gantt.js";
import { Metrics } from "./metrics.js";
import { Workers } from "./workers.js";
import { Logs } from "./logs.js";
import { Traces } from "./trace.js";
import { Events } from "./events.js";
import { useRef, useState } from "preact/hooks";

const tabs = [["timeline", "Timeline"], ["metrics", "Metrics"], ["logs", "Logs"], ["workers", "Workers"], ["samples", "Samples"], ["traces", "Traces"], ["events", "Events"], ["spec", "Spec"]];

// tabAddress is a tab of the job for the same time.
const tabAddress = (id, tab, query) => address(["jobs", id, tab], { from: query.get("from"), to: query.get("to") });

export function Job({ id, tab, query }) {
  const [job, error] = useResource(`/api/v1/jobs/${id}`, ofJob(id), 100);
  const [why] = useResource(`/api/v1/jobs/${id}/explain`, ({ kind, data }) => ofJob(id)({ kind, data }) || (kind === "change" && data.kind === "pool"), 400);
  const steps = useSteps();
  useNow();
  if (!job) return html`<h1>${id}</h1><${Problem} error=${error} />`;
  const progress = ended(job) ? undefined : steps[id];
  const kept = redundancy(job, progress);
  const faults = job.incidents.filter((i) => !planned(i.cause));
  const times = faults.map((i) => i.total_ms).sort((a, b) => a - b);
  const move = (e, i) => {
    const next = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[e.key];
    if (next === undefined) return;
    e.preventDefault();
    const to = tabs[(next + tabs.length) % tabs.length][0];
    location.hash = tabAddress(id, to, query);
    document.getElementById(`tab-${to}`).focus();
  };
  return html`
    <div class="head"><h1>${id}</h1><${Badge} state=${job.state} /><span class="soft">generation ${job.generation} · ${members(job)} · ${ended(job) ? `ended ${ago(job.ended)}` : `submitted ${ago(job.submitted)}`}</span>
      <span class="actions">${mayChange(job) && !ended(job) && html`<${Scale} job=${job} /><${Action} text="Stop" sure="Really stop it?" danger run=${() => request("POST", `/api/v1/jobs/${id}/stop`, { reason: "stopped in the dashboard" })} />`}
      ${mayChange(job) && ended(job) && html`<${Action} text="Remove" sure="Really remove its record?" danger run=${async () => { await request("DELETE", `/api/v1/jobs/${id}`); location.hash = "#/jobs"; }} />`}</span></div>
    <p class="explain">${why ? sentence(why) : job.reason || " "}</p><${Problem} error=${error} />
    ${job.state === "failed" && job.first_error && html`<${FirstError} job=${job} />`}
    <div class="cards">
      <${Card} name="step" value=${Math.max(job.step, progress?.step || 0) === 0 ? "none reported" : number(Math.max(job.step, progress?.step || 0))} note=${progress ? Object.entries(progress.metrics || {}).slice(0, 2).map(([k, v]) => `${k} ${number(v)}`).join(", ") : job.step_at ? ago(job.step_at) : ""} />
      <${Card} name="goodput" value=${job.goodput === null ? "unknown" : `${job.goodput_at_most ? "at most " : ""}${percent(job.goodput)}`} note="observed time that brought it forward" />
      <${Card} name="recoveries" value=${faults.length} note=${job.open_incident && !planned(job.open_incident.cause) ? "one under way" : plural(job.incidents.filter((i) => planned(i.cause) && i.cause.kind !== "start").length, "planned change")} />
      <${Card} name="recovery" value=${times.length ? span(median(times)) : "-"} note=${times.length > 1 ? `median; the longest took ${span(times.at(-1))}` : times.length ? "the only one" : "none yet"} />
      ${job.spec.recovery === "in-process" && !ended(job) && job.generation > 0 && html`<${Card} name="losses survived" value=${kept?.losses ?? "unknown"} note=${kept ? `commit of step ${number(kept.commit.step)}, ${old(kept.committed_at)}` : "no whole commit was reported"} />`}
      <${Card} name="steps lost" value=${stepsLost(faults)} note=${job.counted_failures?.length ? `${plural(job.failures?.length || 0, "failure")} counted` : ""} />
    </div>
    ${kept && html`<p class="soft">${survives(kept)}</p>`}
    <div role="tablist" aria-label="About this job">${tabs.map(([name, text], i) => html`<button role="tab" id="tab-${name}" aria-selected=${tab === name ? "true" : "false"} aria-controls=${tab === name ? "tab-panel" : null} tabindex=${tab === name ? 0 : -1}
      onKeyDown=${(e) => move(e, i)} onClick=${() => { location.hash = tabAddress(id, name, query); }}>${text}</button>`)}</div>
    <div role="tabpanel" id="tab-panel" aria-labelledby="tab-${tab}">${panel(tab, job, query, progress)}</div>`;
}

function panel(tab, job, query, progress) {
  switch (tab) {
    case "timeline": return html`<${Gantt} job=${job} query=${query} /><${Incidents} job=${job} />`;
    case "metrics": return html`<${Metrics} job=${job} query=${query} />`;
    case "logs": return html`<${Logs} job=${job} query=${query} />`;
    case "workers": return html`<${Workers} job=${job} slowest=${progress?.slowest || job.slowest} />`;
    case "samples": return html`<${Samples} job=${job} />`;
    case "traces": return html`<${Traces} job=${job} query=${query} />`;
    case "events": return html`<${Events} job=${job} query=${query} />`;
    case "spec": return html`<section class="panel"><h2>Specification, with every default</h2><pre tabindex="0">${JSON.stringify(job.spec, null, 2)}</pre><p class="empty">submitted by ${job.by}${may("submitter") && html` · <a href=${address(["submit"], { clone: job.job })}>submit another like it</a>`}</p></section>`;
  }
  return html`<p class="empty">There is no such tab.</p>`;
}

// Scale asks for the wanted number of workers in a dialog, so that nothing on the page moves.
function Scale({ job }) {
  const dialog = useRef(null);
  const [error, fail] = useState("");
  const send = async (e) => {
    e.preventDefault();
    const f = new FormData(e.target);
    try {
      await request("PATCH", `/api/v1/jobs/${job.job}`, { workers: { min: Number(f.get("min")), max: Number(f.get("max")) } });
      dialog.current.close();
      fail("");
    } catch (err) { fail(err.message); }
  };
  return html`<button onClick=${() => dialog.current.showModal()}>Scale</button>
    <dialog ref=${dialog} aria-label="Scale ${job.job}"><form onSubmit=${send}><h2>Workers of ${job.job}</h2>
      <p class="soft">A planned change: nobody starts again, and it is no failure.</p>
      <div class="tools"><label>from <input name="min" type="number" min="1" size="4" value=${job.spec.workers.min} required /></label>
      <label>to <input name="max" type="number" min="1" size="4" value=${job.spec.workers.max} required /></label></div>
      ${error && html`<p role="alert" class="message bad">${error}</p>`}
      <div class="tools"><button>Set</button><button type="button" onClick=${() => dialog.current.close()}>Cancel</button></div></form></dialog>`;
}

function Incidents({ job }) {
  const all = [...job.incidents].reverse(), marks = new Map(job.marks.map((m) => [m.incident, m]));
  const longest = Math.max(1, ...all.map(extent));
  const links = (i) => {
    const m = marks.get(i.incident), at = m && around(Date.parse(m.from), Date.parse(m.to || m.from));
    return html`<span class="links">${at && html`<a href=${address(["jobs", job.job, "timeline"], at)}>timeline</a><a href=${address(["jobs", job.job, "logs"], { at: Date.parse(m.from) })}>logs</a><a href=${address(["jobs", job.job, "metrics"], at)}>metrics</a><a href=${address(["jobs", job.job, "events"], at)}>events</a>`}
      <a href=${address(["jobs", job.job, "traces"], { incident: i.incident })}>trace</a></span>`;
  };
  return html`<section class="panel" aria-labelledby="incidents"><h2 id="incidents">Incidents</h2>
    ${all.length === 0 && !job.open_incident ? html`<p class="empty">None.</p>` : html`<p class="soft">The bars have one scale: the longest took ${span(longest)}.</p>`}
    <ul class="plain incidents">
      ${job.open_incident && html`<li key="open"><${IncidentHead} incident=${job.open_incident} open /> ${links(job.open_incident)}</li>`}
      ${all.map((i) => html`<li key=${i.incident} data-incident=${i.incident}><div class="whole">
        <${IncidentHead} incident=${i} /> <span class="soft">g${i.from} → ${i.to ? `g${i.to}` : "end"} · ${planned(i.cause) ? "planned" : lost(i)}${silence(i)}</span> ${links(i)}<${Phases} incident=${i} longest=${longest} /></div></li>`)}
    </ul></section>`;
}

function Samples({ job }) {
  const [s] = useResource(`/api/v1/jobs/${job.job}/summary`, ofJob(job.job), 500);
  const l = job.ledger;
  if (!l?.samples) return html`<section class="panel"><h2>Samples</h2><p class="empty">The program keeps no ledger of samples.</p></section>`;
  const p = s?.samples;
  return html`<section class="panel"><h2>Samples</h2>
    ${p && html`<p class="message ${p.missing || p.repeated ? "bad" : ""}">${p.missing === 0 && p.repeated === 0
      ? p.unproven ? "By their number every sample of every finished epoch was trained on once." : "Every sample of every finished epoch was trained on exactly once."
      : `${p.missing} samples are missing, ${p.repeated} were repeated.`}</p>`}
    <${Table} name="Epochs" head=${[{ num: "Epoch" }, { num: "Samples" }, { num: "Of" }, "", "State"]}>
      ${[...l.epochs].reverse().map((e) => html`<tr key=${e.epoch}><td class="num">${e.epoch}</td><td class="num">${number(e.count)}</td><td class="num">${number(l.samples)}</td>
        <td class="wide"><div class="bar" role="img" aria-label=${percent(e.count / l.samples)}><span style=${{ width: `${Math.min(100, (100 * e.count) / l.samples)}%` }}></span></div></td><td>${e.done ? "finished" : "under way"}</td></tr>`)}<//></section>`;
}
