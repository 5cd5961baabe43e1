// Every job as a strip of time: waiting, training, incidents, end.
import { html } from "htm/preact";
import { address } from "./address.js";
import { Command } from "./copy.js";
import { clock, now, percent, span, wall } from "./format.js";
import { Badge } from "./parts.js";

const lasts = [["15m", "15 min", 900e3], ["1h", "hour", 3600e3], ["6h", "6 hours", 21600e3], ["24h", "day", 86400e3], ["7d", "week", 604800e3]];

// shortest is the shortest of the ranges in which the oldest of the newest few jobs began.
function shortest(strips, end) {
  const oldest = Math.min(...strips.slice(0, 5).map((s) => Date.parse(s.from)));
  return (lasts.find(([, , ms]) => end - oldest < ms) || lasts.at(-1))[0];
}

function Strip({ s, x, end }) {
  const from = Date.parse(s.from), over = Boolean(s.ended);
  const until = over ? Date.parse(s.ended) : now(), began = s.trained ? Date.parse(s.trained) : until;
  const observed = s.seen ? Date.parse(s.seen) : until; // after it nothing was heard
  const doing = s.step === 0 ? "running" : "training";
  const part = (name, a, b, title) => b > a && x(b) > x(a) && html`<span class="part ${name}" style=${{ left: `${x(a)}%`, width: `${Math.max(0.15, x(b) - x(a))}%` }} title=${title}></span>`;
  return html`<span class="strip">
    ${part("waiting", from, began, `waited ${span(began - from)}`)}
    ${part(doing, began, observed, `${doing}, ${clock(began)} to ${clock(observed)}`)}
    ${part("unobserved", observed, over ? observed : end, `not observed since ${clock(observed)}`)}
    ${s.marks.map((m) => {
      const a = Date.parse(m.from), b = m.to ? Date.parse(m.to) : over ? until : end;
      return x(b) > 0 && html`<a key=${m.incident} class="mark ${m.planned ? "planned" : ""} ${m.to ? "" : "open"}" tabindex="-1" aria-hidden="true" href=${address(["jobs", s.job, "timeline"], { from: Math.floor(a - 10000), to: Math.ceil(b + 10000) })} style=${{ left: `${x(a)}%`, width: `max(3px, ${x(b) - x(a)}%)` }} title=${`#${m.incident} ${m.kind}, ${clock(a)}${m.to ? `, ${span(b - a)}` : ""}`}></a>`;
    })}
    ${over && x(until) > 0 && html`<span class="end ${s.state}" style=${{ left: `${x(until)}%` }} title=${`${s.state}, ${clock(until)}`}></span>`}</span>`;
}

export function Strips({ strips, chosen, choose }) {
  if (strips.length === 0) {
    return html`<section class="panel" aria-labelledby="strips"><h2 id="strips">Jobs by time</h2><p class="empty">No job yet. Start one: <${Command} text="regroup submit --workers 2 -- python train.py" /> or <a href="#/submit">here</a>.</p></section>`;
  }
  const end = wall(), last = lasts.find(([n]) => n === chosen) || lasts.find(([n]) => n === shortest(strips, end)), begin = end - last[2];
  const x = (t) => Math.max(0, Math.min(100, (100 * (t - begin)) / last[2]));
  const shown = strips.filter((s) => !s.ended || Date.parse(s.ended) > begin), faults = (s) => s.marks.filter((m) => !m.planned).length;
  return html`<section class="panel" aria-labelledby="strips"><h2 id="strips">Jobs by time</h2>
    <div class="tools"><span>the last</span><span role="group" aria-label="Range">${lasts.map(([n, text]) => html`<button key=${n} aria-pressed=${n === last[0] ? "true" : "false"} onClick=${() => choose(n)}>${text}</button>`)}</span>
      <span class="legend">${[["waiting", "waiting"], ["training", "training"], ["running", "running, no steps are reported"], ["failure", "incident"], ["calm", "planned change"], ["unobserved", "not observed"]].map(([c, t]) => html`<span><span class="swatch ${c}"></span>${t}</span>`)}</span></div>
    <ul class="strips">${shown.map((s) => html`<li key=${s.job}><a class="name" href=${address(["jobs", s.job])}>${s.job}</a><${Strip} s=${s} x=${x} end=${end} />
      <span class="fact"><${Badge} state=${s.state} /> <span class="soft">${s.goodput === null ? "goodput unknown" : `goodput ${percent(s.goodput)}`}, ${faults(s) === 0 ? "no incident" : `${faults(s)} incident${faults(s) === 1 ? "" : "s"}`}</span></span></li>`)}</ul>
    ${shown.length === 0 && html`<p class="empty">No job in that time.</p>`}
    <div class="strip-axis soft" aria-hidden="true"><span>${span(last[2])} ago</span><span>now</span></div></section>`;
}
