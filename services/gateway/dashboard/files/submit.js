// A new job, or another like one that was: its specification, what is wrong with it, and where it fits.
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { address } from "./address.js";
import { request } from "./api.js";
import { Copy } from "./copy.js";
import { Problem } from "./parts.js";

const blank = { name: "train", command: ["python", "train.py"], workers: { min: 1, max: 2 } };

// findings are what a gateway refuses, each with the field that it is about.
const findings = (error) => (error.errors?.length ? error.errors : [{ path: "", message: error.message }]);

export function Submit({ query }) {
  const clone = query.get("clone");
  const [text, set] = useState(clone ? "" : JSON.stringify(blank, null, 2));
  const [state, say] = useState({ busy: false, findings: [], answer: null });
  const [error, fail] = useState(null);
  useEffect(() => {
    if (clone) request("GET", `/api/v1/jobs/${encodeURIComponent(clone)}`).then((job) => set(JSON.stringify(job.spec, null, 2)), fail);
  }, [clone]);
  const send = async (dry) => {
    say({ busy: true, findings: [], answer: null });
    let job;
    try { job = JSON.parse(text); } catch (e) { return say({ busy: false, findings: [{ path: "", message: `this is no JSON: ${e.message}` }], answer: null }); }
    try {
      const answer = await request("POST", `/api/v1/jobs${dry ? "?dryRun=1" : ""}`, job);
      if (!dry) { location.hash = address(["jobs", answer.job]); return undefined; }
      return say({ busy: false, findings: [], answer });
    } catch (e) { return say({ busy: false, findings: findings(e), answer: null }); }
  };
  return html`<div class="head"><h1>${clone ? `Another job like ${clone}` : "Submit a job"}</h1></div><${Problem} error=${error} />
    <section class="panel"><form onSubmit=${(e) => { e.preventDefault(); send(false); }}>
      <label for="spec">Specification, in JSON; a name, a command and the numbers of workers are needed</label>
      <textarea id="spec" class="mono" rows=${Math.min(30, Math.max(10, text.split("\n").length))} spellcheck="false" value=${text} onInput=${(e) => set(e.target.value)}></textarea>
      <div class="tools"><button type="button" disabled=${state.busy} onClick=${() => send(true)}>Check</button><button disabled=${state.busy || !text}>Submit</button>
        <${Copy} text=${`regroup submit -f - <<'END'\n${text}\nEND`} name="Copy as a command" /></div>
      ${state.findings.length > 0 && html`<div role="alert" class="message bad"><ul class="plain">${state.findings.map((f) => html`<li>${f.path && html`<code>${f.path}</code>`}<span>${f.message}</span></li>`)}</ul></div>`}
      ${state.answer && html`<p role="status" class="message">${state.answer.plan || "Nothing is wrong with it."}</p>`}
    </form></section>`;
}
