// What the program reports, with the generations behind every plot.
import { html } from "htm/preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { useResource } from "./api.js";
import { number } from "./format.js";

const first = ["loss", "steps/s", "samples/s"];

function order(a, b) {
  const at = (n) => (first.includes(n) ? first.indexOf(n) : first.length);
  return at(a) - at(b) || a.localeCompare(b);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// resolved is what a colour with light-dark() comes to: a canvas does not know that function.
function resolved(name) {
  const probe = document.createElement("span");
  probe.style.color = colour(name);
  document.body.append(probe);
  const out = getComputedStyle(probe).color;
  probe.remove();
  return out;
}

// bands paints every second generation and a line where each begins, so that a change is seen in
// the curve.
function bands(points, job) {
  return (u) => {
    const { left, top, width, height } = u.bbox, c = u.ctx;
    c.save();
    c.fillStyle = resolved("--calm-ground");
    const p = points.current;
    for (let i = 0; i < p.length;) {
      let j = i;
      while (j < p.length && p[j][2] === p[i][2]) j++;
      if (p[i][2] % 2 === 0) {
        const a = Math.max(left, u.valToPos(p[i][0], "x", true)), b = Math.min(left + width, u.valToPos(p[Math.min(j, p.length - 1)][0], "x", true));
        c.fillRect(a, top, Math.max(2, b - a), height);
      }
      i = j;
    }
    c.strokeStyle = resolved("--soft");
    c.setLineDash([4, 4]);
    for (const g of job.current.generations) {
      const at = u.valToPos(Date.parse(g.sealed) / 1000, "x", true);
      if (at < left || at > left + width) continue;
      c.beginPath();
      c.moveTo(at, top);
      c.lineTo(at, top + height);
      c.stroke();
    }
    c.restore();
  };
}

function Chart({ name, points, job }) {
  const box = useRef(null), chart = useRef(null), newest = useRef(points), of = useRef(job);
  of.current = job;
  newest.current = points;
  useEffect(() => {
    const axis = { stroke: resolved("--soft"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { stroke: resolved("--line") } };
    const make = () => new uPlot({
      width: Math.max(240, box.current.clientWidth), height: 190, cursor: { sync: { key: "job" }, drag: { x: true, y: false } },
      scales: { x: { time: true } },
      series: [{}, { label: name, stroke: resolved("--training"), width: 1.6, points: { show: false } }],
      axes: [{ ...axis, values: (u, all) => all.map((t) => new Date(t * 1000).toLocaleTimeString([], { hour12: false })), space: 90 }, { ...axis, size: 62, values: (u, all) => all.map(number) }],
      hooks: { drawClear: [bands(newest, of)] },
    }, data(newest.current), box.current);
    chart.current = make();
    const watch = new ResizeObserver(() => { if (box.current) chart.current.setSize({ width: Math.max(240, box.current.clientWidth), height: 190 }); });
    watch.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => { chart.current.destroy(); chart.current = make(); };
    scheme.addEventListener("change", changed);
    return () => { watch.disconnect(); scheme.removeEventListener("change", changed); chart.current.destroy(); };
  }, [name]);
  useEffect(() => { chart.current?.setData(data(points)); }, [points]);
  return html`<div class="panel chart"><h3><span>${name}</span><span class="soft">${number(points.at(-1)?.[1])}</span></h3><div ref=${box} role="img" aria-label=${`${name} over time, now ${number(points.at(-1)?.[1])}`}></div></div>`;
}

const data = (points) => [points.map((p) => p[0]), points.map((p) => p[1])];

export function Metrics({ job }) {
  const [series] = useResource(`/api/v1/jobs/${job.job}/metrics`, ({ kind, data }) => kind === "progress" && data.job === job.job, 1000);
  const names = Object.keys(series?.metrics || {}).sort(order);
  if (series && names.length === 0) {
    return html`<section class="panel"><h2>Metrics</h2><p class="empty">No points yet. A program reports values with regroup.report(loss=…) or Session.Report; this gateway keeps points from its start on.</p>
      ${job.reported && html`<dl class="pairs">${Object.entries(job.reported).map(([k, m]) => html`<dt>${k}</dt><dd>${number(m.value)} after step ${m.step}</dd>`)}</dl>`}</section>`;
  }
  return html`<p class="empty">A dashed line begins a generation; those with an even number are grey. The cursor is the same in every plot; drag to zoom, double-click for all.</p>
    <div class="charts">${names.map((n) => html`<${Chart} key=${n} name=${n} points=${series.metrics[n]} job=${job} />`)}</div>`;
}
