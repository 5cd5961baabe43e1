// The facts about a job: what each says, and as it is stored.
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { address, around, change, range } from "./address.js";
import { clock } from "./format.js";
import { Copy } from "./copy.js";

const most = 500;
const short = (type) => type.replace("dev.regroup.", "").replace(/\.v1$/, "");
const progress = (type) => short(type) === "job.progressed";

// curl is the command that reads one event from the gateway.
const curl = (job, id) => `curl -s -H "Authorization: Bearer $REGROUP_TOKEN" -H "Accept: application/x-ndjson" "${location.origin}/api/v1/jobs/${job}/events?after=${id - 1}&follow=0" | head -n 1`;

export function Events({ job, query }) {
  const [all, set] = useState([]);
  const q = query.get("q") || "", family = query.get("family"), chosen = query.get("event"), steps = query.get("progress") === "1", within = range(query);
  useEffect(() => {
    set([]);
    const source = new EventSource(`/api/v1/jobs/${job.job}/events?after=0&text=1`);
    let queue = [], timer = null;
    source.addEventListener("fact", (e) => {
      queue.push({ id: Number(e.lastEventId), ...JSON.parse(e.data) });
      timer ??= setTimeout(() => {
        timer = null;
        const next = queue;
        queue = [];
        set((a) => bounded([...next.reverse(), ...a]));
      }, 100);
    });
    return () => { source.close(); clearTimeout(timer); };
  }, [job.job]);
  const families = [...new Set(all.map((f) => f.family))].sort();
  const shown = all.filter(({ id, text, event, family: of }) => {
    const at = Date.parse(event.time);
    return String(id) === chosen || ((steps || !progress(event.type)) && (!family || of === family) && (!within || (at >= within.from && at <= within.to))
      && (!q || `${short(event.type)} ${text} ${JSON.stringify(event)}`.toLowerCase().includes(q.toLowerCase())));
  });
  const hidden = all.length - shown.length;
  return html`<section class="panel"><h2>Events</h2>
    <div class="tools"><label>Search <input type="search" value=${q} onInput=${(e) => change({ q: e.target.value })} /></label>
      <span role="group" aria-label="Families"><button aria-pressed=${family ? "false" : "true"} onClick=${() => change({ family: null })}>all</button>
      ${families.map((f) => html`<button key=${f} aria-pressed=${family === f ? "true" : "false"} onClick=${() => change({ family: family === f ? null : f })}>${f}</button>`)}</span>
      <label><input type="checkbox" checked=${steps} onChange=${(e) => change({ progress: e.target.checked ? "1" : null })} /> progress</label>
      ${within && html`<button onClick=${() => change({ from: null, to: null })}>Not only ${clock(within.from)} to ${clock(within.to)}</button>`}
      <span class="soft" role="status">${shown.length} shown${hidden > 0 ? `, ${hidden} hidden` : ""}${all.some((f) => f.cut) ? "; older ones: regroup events" : ""}</span></div>
    ${shown.length === 0 && html`<p class="empty">${all.length ? "No event matches." : "No event yet."}</p>`}
    <ul class="plain facts">${shown.map((f) => html`<${Fact} key=${f.id} fact=${f} job=${job.job} open=${String(f.id) === chosen} />`)}</ul></section>`;
}

// bounded keeps the newest; reports of progress go first, since there is no end of them.
function bounded(all) {
  if (all.length <= most) return all;
  let left = all.filter((f) => !progress(f.event.type)).length;
  const room = Math.max(0, most - left);
  let kept = 0;
  const out = all.filter((f) => !progress(f.event.type) || kept++ < room);
  if (out.length > most) {
    out.length = most;
    out.at(-1).cut = true;
  }
  return out;
}

function Fact({ fact: { id, text, family, event }, job, open }) {
  const row = useRef(null);
  const [shown, show] = useState(open); // an event of thousands of workers is long: it is written when it is looked at
  useEffect(() => { if (open) row.current?.scrollIntoView({ block: "center" }); }, [open]);
  const at = Date.parse(event.time);
  return html`<li ref=${row} data-event=${id}><details open=${open} onToggle=${(e) => show(e.currentTarget.open)}><summary><span class="time">${clock(event.time)}</span>
      <span class="badge family ${family}">${short(event.type)}</span> <span>${text}</span></summary>
    ${shown && html`<div class="tools"><${Copy} text=${`${location.origin}/${address(["jobs", job, "events"], { event: id })}`} name="Copy link" /><${Copy} text=${curl(job, id)} name="Copy as curl" /><a href=${address(["jobs", job, "timeline"], around(at))}>timeline</a><a href=${address(["jobs", job, "logs"], { at })}>logs</a><span class="soft">${event.source}</span></div>
    <pre tabindex="0">${JSON.stringify(event, null, 2)}</pre>`}</details></li>`;
}
