// The facts about a job, as they are stored.
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { clock } from "./format.js";

const most = 500;

export function Events({ job }) {
  const [all, set] = useState([]);
  const [q, search] = useState("");
  useEffect(() => {
    set([]);
    const source = new EventSource(`/api/v1/jobs/${job.job}/events?after=0`);
    let queue = [], timer = null;
    source.addEventListener("fact", (e) => {
      queue.push({ id: e.lastEventId, fact: JSON.parse(e.data) });
      timer ??= setTimeout(() => { timer = null; const next = queue; queue = []; set((a) => [...next.reverse(), ...a].slice(0, most)); }, 100);
    });
    return () => { source.close(); clearTimeout(timer); };
  }, [job.job]);
  const shown = all.filter(({ fact }) => !q || JSON.stringify(fact).includes(q));
  return html`<section class="panel"><h2>Events</h2>
    <div class="tools"><label>Search <input type="search" value=${q} onInput=${(e) => search(e.target.value)} /></label><span class="soft">${shown.length} of ${all.length}${all.length === most ? ", the newest" : ""}</span></div>
    <ul class="plain">${shown.map(({ id, fact }) => html`<li key=${id}><details style=${{ flex: 1 }}><summary><span class="soft">${clock(fact.time)}</span> <span class="mono">${fact.type.replace("dev.regroup.", "").replace(/\.v1$/, "")}</span> <span class="soft">${fact.source}</span></summary><pre tabindex="0">${JSON.stringify(fact, null, 2)}</pre></details></li>`)}</ul></section>`;
}
