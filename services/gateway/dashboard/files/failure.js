// Why a job has failed: the first error, its traceback, and the lines before it.
import { html } from "htm/preact";
import { address } from "./address.js";
import { pieces } from "./ansi.js";
import { clock } from "./format.js";

export function FirstError({ job }) {
  const e = job.first_error, x = e.exception, at = Date.parse(e.failed_at);
  const others = (job.counted_failures || []).length - 1;
  return html`<section class="panel failure" aria-labelledby="first-error"><h2 id="first-error">First error</h2>
    <p><strong>${x ? `${x.type}${x.message ? `: ${x.message}` : ""}` : e.detail}</strong></p>
    <p class="soft">rank ${e.rank ?? "-"} on ${e.place.node}/${e.place.slot}, generation ${e.generation || "-"}${Number.isFinite(at) ? `, ${clock(at)}` : ""}${x?.file ? html` · <span class="mono">${x.file}:${x.line}</span>${x.function ? ` in ${x.function}` : ""}` : ""}${x?.cause ? ` · because of ${x.cause}` : ""}${others > 0 ? ` · ${others} more failures were counted` : ""}</p>
    ${e.lines?.length > 0 && html`<pre class="traceback" tabindex="0" aria-label="The last lines of its output">${e.lines.map((l, i) => html`<div key=${i}>${pieces(l).map((p, n) => html`<span key=${n} class=${p.classes} style=${p.style}>${p.text}</span>`)}</div>`)}</pre>`}
    <p class="links"><a href=${address(["jobs", job.job, "logs"], { at: Number.isFinite(at) ? at - 500 : null, rank: e.rank })}>its output at that second</a><a href=${address(["jobs", job.job, "logs"], { at: Number.isFinite(at) ? at - 500 : null })}>that of all ranks</a>
      ${Number.isFinite(at) && html`<a href=${address(["jobs", job.job, "timeline"], { from: Math.floor(at - 10000), to: Math.ceil(at + 10000) })}>timeline</a>`}<a href=${address(["jobs", job.job, "traces"])}>traces</a></p></section>`;
}
