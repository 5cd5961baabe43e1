// The output of the workers, live. Only the lines in sight are in the page.
import { html } from "htm/preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { pieces, plain } from "./ansi.js";
import { address, change } from "./address.js";
import { clock } from "./format.js";
import { append } from "./lines.js";

const most = 20000, lineHeight = 20, beyond = 20;
const wrong = /\b(error|exception|traceback|fatal|panic)\b/i;

// pattern is what to search for: a regular expression if it is one, else the text itself.
function pattern(q) {
  if (!q) return null;
  try { return new RegExp(q, "i"); } catch { return new RegExp(q.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i"); }
}

export function Logs({ job, query }) {
  const [lines, set] = useState([]);
  const q = query.get("q") || "", search = (text) => change({ q: text });
  const rank = query.has("rank") ? Number(query.get("rank")) : null, choose = (r) => change({ rank: r });
  const at = Number(query.get("at")) || null; // the time to show, in milliseconds since 1970
  const [follow, setFollow] = useState(!at);
  const reached = useRef(false); // the line of that time was shown
  const [scroll, setScroll] = useState({ top: 0, height: 560 });
  const box = useRef(null);
  useEffect(() => {
    set([]);
    const source = new EventSource(`/api/v1/jobs/${job.job}/logs?follow=1&tail=5000`);
    let queue = [], timer = null;
    source.addEventListener("line", (e) => {
      const l = JSON.parse(e.data);
      l.plain = plain(l.text);
      queue.push(l);
      timer ??= setTimeout(() => { timer = null; const next = queue; queue = []; set((all) => append(all, next, most)); }, 60);
    });
    return () => { source.close(); clearTimeout(timer); };
  }, [job.job]);
  const ranks = useMemo(() => [...new Set(lines.map((l) => l.rank).filter((r) => r !== null))].sort((a, b) => a - b), [lines]);
  const find = pattern(q);
  const shown = useMemo(() => lines.filter((l) => (rank === null || l.rank === rank) && (!find || find.test(l.plain))), [lines, rank, q]);
  useEffect(() => { if (follow && box.current) box.current.scrollTop = box.current.scrollHeight; }, [shown, follow]);
  useEffect(() => { reached.current = false; if (at) setFollow(false); }, [at]);
  useEffect(() => {
    if (!at || reached.current || !box.current) return;
    const i = shown.findIndex((l) => Date.parse(l.time) >= at);
    if (i < 0) return;
    reached.current = true;
    box.current.scrollTop = Math.max(0, i * lineHeight - 60);
  }, [shown, at]);
  const from = Math.max(0, Math.floor(scroll.top / lineHeight) - beyond), to = Math.min(shown.length, Math.ceil((scroll.top + scroll.height) / lineHeight) + beyond);
  const onScroll = (e) => {
    const b = e.currentTarget;
    setScroll({ top: b.scrollTop, height: b.clientHeight });
    setFollow(b.scrollHeight - b.scrollTop - b.clientHeight < lineHeight);
  };
  const jump = () => {
    const i = shown.findIndex((l) => wrong.test(l.plain));
    if (i >= 0) { setFollow(false); box.current.scrollTop = Math.max(0, i * lineHeight - 60); }
  };
  return html`<section class="panel"><h2>Logs</h2>
    <div class="tools">
      <label>Search <input type="search" value=${q} placeholder="text or regular expression  ( / )" onInput=${(e) => search(e.target.value)} /></label>
      <button aria-pressed=${rank === null ? "true" : "false"} onClick=${() => choose(null)}>all ranks</button>
      ${ranks.slice(0, 16).map((r) => html`<button key=${r} aria-pressed=${rank === r ? "true" : "false"} onClick=${() => choose(rank === r ? null : r)}>r${r}</button>`)}
      <button onClick=${jump}>First error</button>
      <button aria-pressed=${follow ? "true" : "false"} onClick=${() => setFollow(!follow)}>Follow</button>
      <a class="button" href="/api/v1/jobs/${job.job}/logs" download="${job.job}.log">Download</a>
      <span class="soft" role="status">${shown.length === lines.length ? `${lines.length} lines` : `${shown.length} of ${lines.length} lines`}</span></div>
    <div class="log" ref=${box} tabindex="0" role="log" aria-label="Output of the workers" onScroll=${onScroll}>
      ${shown.length === 0 && html`<div class="none">${lines.length ? "No line matches." : "No output yet."}</div>`}
      <div style=${{ height: `${shown.length * lineHeight}px` }}></div>
      <div class="lines" style=${{ top: `${from * lineHeight}px` }}>${shown.slice(from, to).map((l, i) => html`<div key=${from + i} class="row ${wrong.test(l.plain) ? "bad" : ""} ${at && Math.abs(Date.parse(l.time) - at) < 1000 ? "near" : ""} ${l.stream === "regroup" ? "own" : ""}"><span class="who ${l.rank === null ? "rn" : `r${l.rank % 8}`}">[${l.place.node} ${l.rank === null ? "r-" : `r${l.rank}`} g${l.generation}]</span><a class="who rn" href=${address(["jobs", job.job, "timeline"], { from: Date.parse(l.time) - 15000, to: Date.parse(l.time) + 15000 })}>${clock(l.time)}</a><span>${pieces(l.text).map((p, n) => html`<span key=${n} class=${p.classes} style=${p.style}>${p.text}</span>`)}</span></div>`)}</div>
    </div></section>`;
}
