// Workers by time: a row for each place, a line for each generation, a band for each incident.
import { html } from "htm/preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { address, change, range as chosen } from "./address.js";
import { useNow, useResource } from "./api.js";
import { clock, now, span, wall } from "./format.js";
import { lost } from "./parts.js";
import { useWindow } from "./window.js";

const rowHeight = 26, top = 30, bottom = 26, labelWidth = 118;
const ranges = [["all", "Whole run", 0], ["10m", "Last 10 min", 600e3], ["1m", "Last minute", 60e3]];

// rows groups the incarnations by place: their order is that of the answer, by place and attempt.
function rows(timeline) {
  const by = new Map();
  for (const l of timeline.incarnations) {
    const key = `${l.place.node}/${l.place.slot}`;
    if (!by.has(key)) by.set(key, []);
    by.get(key).push(l);
  }
  return [...by].map(([place, lives]) => ({ place, lives, rank: lives.at(-1).rank }));
}

// bands are the incidents in time.
function bands(job, end) {
  const incidents = new Map([...job.incidents, ...(job.open_incident ? [job.open_incident] : [])].map((i) => [i.incident, i]));
  return job.marks.filter((m) => incidents.has(m.incident)).map((m) => ({ incident: incidents.get(m.incident), planned: m.planned, from: Date.parse(m.from), to: m.to ? Date.parse(m.to) : end }));
}

// short is a reason as far as there is room for it; all of it is in the title.
const short = (text) => (text.length > 28 ? text.slice(0, 27) + "…" : text);

// words say what a colour means.
const words = { training: "training", running: "running, no steps are reported", rendezvous: "rendezvous", restore: "restore", unobserved: "not observed", failure: "failure" };

// legend lists what is drawn.
function legend(all, silent) {
  const drawn = new Set(all.flatMap((r) => r.lives.flatMap((l) => [...l.stretches.map((s) => s.doing), ...(l.failure ? ["failure"] : [])])));
  if (silent) drawn.add("unobserved");
  return Object.keys(words).filter((d) => drawn.has(d));
}

const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 30e3, 60e3, 120e3, 300e3, 600e3, 1800e3, 3600e3, 7200e3, 21600e3, 86400e3];

function axis(from, to, start, width) {
  const every = steps.find((s) => (s / (to - from)) * width >= 80) || steps.at(-1);
  const ticks = [];
  for (let t = Math.ceil((from - start) / every) * every; start + t <= to; t += every) ticks.push({ at: start + t, text: t === 0 ? "0" : span(t).replace(/\.0 /, " ") });
  return ticks;
}

export function Gantt({ job, query }) {
  const over = Boolean(job.ended);
  const [timeline] = useResource(`/api/v1/jobs/${job.job}/timeline`, ({ kind, data }) => kind === "fact" && data.subject === job.job, 150, over ? 0 : 5000);
  useNow(over ? 3600e3 : 250);
  const box = useRef(null);
  const [width, setWidth] = useState(900);
  const range = chosen(query) || { name: query.get("range") || "all" };
  const setRange = ({ name, from, to }) => change({ range: name && name !== "all" ? name : null, from: from && Math.floor(from), to: to && Math.ceil(to) });
  const [brush, setBrush] = useState(null);
  const [over_, point] = useState(null);
  const [cursor, hover] = useState(null); // the time under the pointer
  useEffect(() => {
    const watch = new ResizeObserver(([e]) => setWidth(Math.max(280, e.contentRect.width)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const all = useMemo(() => (timeline ? rows(timeline) : []), [timeline]);
  const [first, last] = useWindow(box, all.length, rowHeight, top);
  const label = width < 520 ? 84 : labelWidth;
  const start = timeline ? Date.parse(timeline.start) : 0;
  const end = timeline ? (over ? Date.parse(timeline.end) : Math.max(Date.parse(timeline.end), wall())) : 1;
  const observed = over ? end : Math.max(now(), timeline ? Date.parse(timeline.end) : 0); // after it nothing was heard
  const incidents = bands(job, end);
  const recent = ranges.find(([name]) => name === range.name)?.[2];
  const from = range.from ?? (recent ? Math.max(start, end - recent) : start), to = range.to ?? end;
  const plot = width - label - 8, height = top + Math.max(1, all.length) * rowHeight + bottom;
  const x = (t) => label + (Math.max(from, Math.min(to, t)) - from) / Math.max(1, to - from) * plot;
  const shown = (a, b) => b >= from && a <= to;
  const timeAt = (e) => from + Math.max(0, Math.min(1, (e.clientX - box.current.getBoundingClientRect().left - label) / plot)) * (to - from);
  const down = (e) => { if (e.button === 0) { e.currentTarget.setPointerCapture(e.pointerId); setBrush({ a: timeAt(e), b: timeAt(e) }); } };
  const drag = (e) => {
    hover(timeAt(e));
    if (brush) setBrush({ ...brush, b: timeAt(e) });
  };
  const up = () => {
    if (brush && x(Math.max(brush.a, brush.b)) - x(Math.min(brush.a, brush.b)) > 6) setRange({ from: Math.min(brush.a, brush.b), to: Math.max(brush.a, brush.b) });
    setBrush(null);
  };
  const show = (a, b) => setRange({ from: Math.max(start, a), to: Math.min(end, Math.max(b, a + 10)) });
  const key = (e) => {
    const length = to - from, middle = (from + to) / 2;
    const next = { "+": [middle - length / 4, middle + length / 4], "=": [middle - length / 4, middle + length / 4], "-": [middle - length, middle + length], ArrowLeft: [from - length / 4, to - length / 4], ArrowRight: [from + length / 4, to + length / 4] }[e.key];
    if (e.key === "0" || e.key === "Escape") setRange({ name: "all" });
    if (next) { e.preventDefault(); show(...next); }
  };
  const wheel = (e) => { // also two fingers on a touchpad; without a key the page scrolls
    if (!e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    const at = timeAt(e), by = Math.exp(Math.max(-1, Math.min(1, e.deltaY / 200)));
    if (by > 1 && from <= start && to >= end) return;
    show(at - (at - from) * by, at + (to - at) * by);
  };
  let lastLabel = -1e9;
  return html`<section class="panel" aria-labelledby="timeline"><h2 id="timeline">Timeline</h2>
    <div class="tools">${ranges.map(([name, text]) => html`<button aria-pressed=${range.name === name ? "true" : "false"} onClick=${() => setRange({ name })}>${text}</button>`)}
      <span class="soft">drag, or turn the wheel with Ctrl, to zoom; + − arrows, 0 = all</span>
      ${range.from && html`<span class="tools">${clock(range.from)} to ${clock(range.to)}: ${["logs", "metrics", "events"].map((tab) => html`<a href=${address(["jobs", job.job, tab], tab === "logs" ? { at: range.from } : range)}>${tab}</a>`)}</span>`}
      <span class="soft cursor" aria-hidden="true">${cursor !== null && timeline ? `${clock(cursor)}, ${span(cursor - start)} after the start` : ""}</span></div>
    <div class="legend">${legend(all, observed < end).map((d) => html`<span><span class="swatch ${d}"></span>${words[d] || d}</span>`)}</div>
    <div class=${all.length > 200 ? "tall" : null}><div ref=${box}>
    ${timeline && all.length === 0 && html`<p class="empty">No worker has started yet.</p>`}
    ${all.length > 0 && html`<svg class="gantt" width=${width} height=${height} viewBox="0 0 ${width} ${height}" role="group" tabindex="0" aria-label=${`Timeline of ${all.length} workers, ${job.generations.length} generations, ${incidents.length} incidents; the list below has the incidents`}
        onPointerDown=${down} onPointerMove=${drag} onPointerUp=${up} onPointerLeave=${() => hover(null)} onDblClick=${() => setRange({ name: "all" })} onKeyDown=${key} onWheel=${wheel}>
      <defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-ground" width="6" height="6" /><line class="hatch-line" x1="0" y1="0" x2="0" y2="6" /></pattern></defs>
      ${axis(from, to, start, plot).map((t) => html`<g key=${t.at}><line class="tick" x1=${x(t.at)} x2=${x(t.at)} y1=${top} y2=${height - bottom + 4} /><text class="soft" x=${x(t.at)} y=${height - 8} text-anchor=${x(t.at) > width - 30 ? "end" : "middle"}>${t.text}</text></g>`)}
      ${incidents.filter((b) => shown(b.from, b.to)).map((b) => html`<rect key=${b.incident.incident} class="incident ${b.planned ? "planned" : ""} ${over_ === b.incident.incident ? "chosen" : ""}" data-incident=${b.incident.incident}
        x=${x(b.from)} width=${Math.max(3, x(b.to) - x(b.from))} y=${top - 2} height=${all.length * rowHeight + 4} onPointerEnter=${() => point(b.incident.incident)} onPointerLeave=${() => point(null)}><title>${`incident #${b.incident.incident}: ${b.incident.cause.kind} ${b.incident.cause.detail || ""}, ${b.incident.total_ms === undefined ? "open" : `${span(b.incident.total_ms)}, ${lost(b.incident)}`}`}</title></rect>`)}
      ${all.slice(first, last).map((r, i) => {
        const y = top + (first + i) * rowHeight;
        return html`<g key=${r.place}><text x="0" y=${y + 16}>${r.place}</text><text class="soft" x=${label - 8} y=${y + 16} text-anchor="end">${r.rank === null ? "" : `r${r.rank}`}</text>
          ${r.lives.map((l, n) => {
            const newest = l.stretches.length - 1, alive = !over && !l.failure && n === r.lives.length - 1 && Date.parse(l.stretches[newest]?.to) >= Date.parse(timeline.end) - 1;
            const bar = (k, doing, a, b) => shown(a, b) && b > a && html`<rect key=${k} class=${doing} x=${x(a)} width=${Math.max(1, x(b) - x(a))} y=${y + 4} height=${rowHeight - 8} rx=${x(b) - x(a) > 6 ? 2 : 0}><title>${`${r.place}, attempt ${l.attempt}: ${words[doing]} for ${span(b - a)}`}</title></rect>`;
            return html`<g key=${l.attempt}>${l.stretches.map((s, k) => bar(k, s.doing, Date.parse(s.from), alive && k === newest ? observed : Date.parse(s.to)))}
            ${alive && bar("after", "unobserved", observed, end)}
            ${l.failure && l.ended && shown(Date.parse(l.ended), Date.parse(l.ended)) && html`<g><title>${l.failure}</title><path class="cross" d="M${x(Date.parse(l.ended)) - 5} ${y + 8}l10 10m0 -10l-10 10" />
              ${n === r.lives.length - 1 && html`<text class="soft" x=${x(Date.parse(l.ended)) > width - 180 ? x(Date.parse(l.ended)) - 10 : x(Date.parse(l.ended)) + 10} text-anchor=${x(Date.parse(l.ended)) > width - 180 ? "end" : "start"} y=${y + 17}>${short(l.failure)}</text>`}</g>`}</g>`;
          })}</g>`;
      })}
      ${timeline.generations.filter((g) => shown(Date.parse(g.time), Date.parse(g.time))).map((g) => {
        const at = x(Date.parse(g.time)), text = `g${g.generation} · world ${g.world}`;
        const fits = at - lastLabel > 86 && at < width - 40;
        if (fits) lastLabel = at;
        return html`<g key=${g.generation}><line class="seal" x1=${at} x2=${at} y1=${fits ? 12 : top - 6} y2=${height - bottom} />${fits && html`<text x=${at + 4} y="20" text-anchor=${at > width - 90 ? "end" : "start"} dx=${at > width - 90 ? -8 : 0}>${text}</text>`}</g>`;
      })}
      ${cursor !== null && !brush && html`<line class="pointer" x1=${x(cursor)} x2=${x(cursor)} y1=${top} y2=${height - bottom} />`}
      ${brush && html`<rect class="brush" x=${Math.min(x(brush.a), x(brush.b))} width=${Math.abs(x(brush.b) - x(brush.a))} y=${top} height=${all.length * rowHeight} />`}
    </svg>`}</div></div></section>`;
}
