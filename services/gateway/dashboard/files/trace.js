// The traces of a job: a waterfall for its start, and one for each incident.
import { html } from "htm/preact";
import { useState } from "preact/hooks";
import { address, change } from "./address.js";
import { useResource } from "./api.js";
import { clock, plural, span } from "./format.js";
import { Problem } from "./parts.js";
import { LongTable } from "./window.js";

const last = /\.(incident\.closed|job\.(succeeded|failed|stopped))\.v/;

// extent is the time of the axis: that of the root, because the run of a worker goes on after it.
function extent(rows) {
  const root = rows.find((r) => r.depth === 0 && !r.orphan);
  const from = Math.min(...rows.map((r) => micro(r.start)));
  const to = root ? micro(root.end) : Math.max(...rows.map((r) => micro(r.end)));
  return [from, Math.max(to, from + 0.001)];
}

// micro is a time in milliseconds, with what Date.parse cuts off.
function micro(text) {
  const fraction = /\.(\d+)/.exec(text)?.[1] || "";
  return Math.floor(Date.parse(text) / 1000) * 1000 + Number(`0.${fraction || 0}`) * 1000;
}

function Waterfall({ trace }) {
  const [chosen, choose] = useState(null);
  if (trace.rows.length === 0) return html`<p class="empty">${trace.left_out ? `${plural(trace.left_out, "span")} left out: regroup trace has them.` : "No span of it is stored: they are kept for a while, and stored when they end."}</p>`;
  const [from, to] = extent(trace.rows), length = to - from;
  const at = (t) => Math.max(0, Math.min(1, (micro(t) - from) / length)) * 100;
  const row = (r) => {
    const left = at(r.start), ms = micro(r.end) - micro(r.start), beyond = micro(r.end) > to + 1;
    return html`<tr key=${r.span_id} class=${chosen === r.span_id ? "chosen" : null}>
      <td class="tight"><span style=${{ paddingLeft: `${r.depth * 14}px` }}><button class="link" aria-expanded=${chosen === r.span_id ? "true" : "false"} onClick=${() => choose(chosen === r.span_id ? null : r.span_id)}>${r.name}</button>${r.error && html` <span class="badge bad">error</span>`}${r.orphan && html` <span class="soft">parent not stored</span>`}</span></td>
      <td class="tight">${r.where}</td>
      <td class="tight soft">${r.service}</td>
      <td class="time"><div class="waterfall" role="img" aria-label=${`from ${span(micro(r.start) - from)}, for ${span(ms)}`}><span class=${`${r.error ? "failure" : r.service === "worker" ? "worker" : ""} ${beyond ? "beyond" : ""}`} style=${{ left: `${left}%`, width: `${Math.max(at(r.end) - left, 0)}%` }}></span></div></td>
      <td class="num">${span(ms)}${beyond ? "›" : ""}</td></tr>`;
  };
  const one = trace.rows.find((r) => r.span_id === chosen);
  return html`<p class="soft">${clock(trace.rows[0].start)} · ${span(length)} · ${plural(trace.rows.length + trace.left_out, "span")}${trace.left_out ? `, ${trace.left_out} of them left out` : ""} · <span class="mono">${trace.trace_id}</span></p>
    <${LongTable} name="Spans" head=${["Span", "Where", "Service", "Time", { num: "Took" }]} items=${trace.rows} row=${row} />
    ${one && html`<section aria-label="Attributes of the span" class="attributes"><h3>${one.name}</h3><dl class="pairs">
      ${one.error && html`<dt>error</dt><dd>${one.error}</dd>`}<dt>start</dt><dd>${one.start}</dd><dt>span</dt><dd class="mono">${one.span_id}</dd>
      ${Object.entries(one.attributes || {}).sort().map(([k, v]) => html`<dt key=${k}>${k}</dt><dd>${v}</dd>`)}</dl></section>`}`;
}

export function Traces({ job, query }) {
  // Spans are stored a moment after they end.
  const [page, error] = useResource(`/api/v1/jobs/${job.job}/traces`, ({ kind, data }) => kind === "fact" && data.subject === job.job && last.test(data.type), 1500);
  const number = query.has("incident") ? Number(query.get("incident")) : null, select = (n) => change({ incident: n });
  const traces = page?.traces || [];
  const trace = traces.find((t) => t.incident === number) || traces[0];
  return html`<section class="panel" aria-labelledby="traces"><h2 id="traces">Traces</h2><${Problem} error=${error} />
    ${page && html`<div class="tools"><label>of <select value=${trace?.incident} onChange=${(e) => select(Number(e.target.value))}>
      ${traces.map((t) => html`<option key=${t.incident} value=${t.incident}>${t.title}</option>`)}</select></label>${number > 0 && html`<a href=${address(["jobs", job.job, "timeline"])}>timeline</a>`}${page.cut && html`<span class="soft">older spans are left out: regroup trace has them</span>`}</div>`}
    ${trace && html`<${Waterfall} key=${trace.trace_id} trace=${trace} />`}</section>`;
}
