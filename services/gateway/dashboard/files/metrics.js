// What the program reports, over time or steps, with the generations behind every plot.
import { html } from "htm/preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { change, range } from "./address.js";
import { useResource } from "./api.js";
import { Command } from "./copy.js";
import { course, smoothed, xOf } from "./curves.js";
import { clock, number, span, unit } from "./format.js";

const first = ["loss", "steps/s", "samples/s"];

function order(a, b) {
  const at = (n) => (first.includes(n) ? first.indexOf(n) : first.length);
  return at(a) - at(b) || a.localeCompare(b);
}

// resolved is what a colour with light-dark() comes to: a canvas does not know that function.
function resolved(name) {
  const probe = document.createElement("span");
  probe.style.color = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  document.body.append(probe);
  const out = getComputedStyle(probe).color;
  probe.remove();
  return out;
}

// behind paints what was behind the values: every second generation, a line where each begins, and,
// over time, incidents that were not planned.
function behind(shown) {
  return (u) => {
    const { points, axis, origin, job } = shown.current;
    const { left, top, width, height } = u.bbox, c = u.ctx, x = xOf(axis, origin);
    const at = (value) => Math.max(left, Math.min(left + width, u.valToPos(value, "x", true)));
    c.save();
    c.fillStyle = resolved("--calm-ground");
    c.strokeStyle = resolved("--soft");
    c.setLineDash([4, 4]);
    for (let i = 0; i < points.length;) {
      let j = i;
      while (j < points.length && points[j][2] === points[i][2]) j++;
      const a = at(x(points[i])), b = at(x(points[Math.min(j, points.length - 1)]));
      if (points[i][2] % 2 === 0) c.fillRect(a, top, Math.max(2, b - a), height);
      if (a > left) {
        c.beginPath();
        c.moveTo(a, top);
        c.lineTo(a, top + height);
        c.stroke();
      }
      i = j;
    }
    if (axis === "time") {
      c.fillStyle = resolved("--bad-ground");
      for (const m of job.marks.filter((m) => !m.planned)) {
        const a = at(Date.parse(m.from) / 1000 - origin), b = at(Date.parse(m.to || m.from) / 1000 - origin);
        if (b > left && a < left + width) c.fillRect(a, top, Math.max(3, b - a), height);
      }
    }
    c.restore();
  };
}

// table is what is drawn: the values, the smoothed ones, and those of the other job.
function table({ points, axis, origin, smooth, log, other, otherOrigin }) {
  const valid = (v) => (log && v <= 0 ? null : v);
  const of = (list, from) => [list.map(xOf(axis, from)), list.map((p) => valid(p[1]))];
  const [xs, raw] = of(points, origin), all = [[xs, smooth ? raw : raw.map(() => null), smoothed(raw, smooth)]];
  if (other) {
    const [otherXs, values] = of(other, otherOrigin);
    all.push([otherXs, smoothed(values, smooth)]);
  }
  return other ? uPlot.join(all) : all[0];
}

const height = 200;

function Chart({ name, with: compared, ...now }) {
  const box = useRef(null), said = useRef(null), chart = useRef(null), shown = useRef(now);
  shown.current = now;
  const { points, axis, log } = now, format = unit(name), newest = points.at(-1);
  const says = (p) => (p ? `${format(p[1])} · step ${number(p[3])} · ${clock(p[0] * 1000)} · g${p[2]}` : "");
  useEffect(() => {
    const make = () => {
      const lines = { stroke: resolved("--soft"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { stroke: resolved("--line") } };
      const xs = axis === "step" ? (u, all) => all.map(number) : shown.current.origin ? (u, all) => all.map((t) => span(t * 1000)) : (u, all) => all.map((t) => clock(t * 1000));
      const series = [{}, { stroke: resolved("--faint"), width: 1, points: { show: false } }, { label: name, stroke: resolved("--training"), width: 1.8, spanGaps: true, points: { show: false } }];
      if (compared) series.push({ label: compared, stroke: resolved("--other"), width: 1.8, spanGaps: true, points: { show: false } });
      return new uPlot({
        width: Math.max(240, box.current.clientWidth), height, series,
        cursor: { sync: { key: `job ${axis}` }, drag: { x: true, y: false, setScale: false } },
        scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
        axes: [{ ...lines, values: xs, space: axis === "step" ? 64 : 84 }, { ...lines, size: 68, space: 28, values: (u, all) => all.map((v) => (v === null ? "" : format(v))) }],
        hooks: {
          drawClear: [behind(shown)],
          setCursor: [(u) => {
            const { points, origin } = shown.current, x = xOf(axis, origin);
            const at = u.cursor.idx === null || u.cursor.idx === undefined ? undefined : u.data[0][u.cursor.idx];
            let i = at === undefined ? -1 : points.findIndex((p) => x(p) >= at);
            if (at !== undefined && i < 0) i = points.length - 1;
            said.current.textContent = says(i < 0 ? points.at(-1) : points[i]);
          }],
          setSelect: [(u) => {
            if (u.select.width < 6) return;
            const [a, b] = [u.select.left, u.select.left + u.select.width].map((p) => u.posToVal(p, "x"));
            u.setSelect({ width: 0, height: 0 }, false);
            const { origin } = shown.current;
            if (axis === "time" && !compared) change({ from: Math.floor((a + origin) * 1000), to: Math.ceil((b + origin) * 1000) });
            else u.setScale("x", { min: a, max: b });
          }],
        },
      }, table(shown.current), box.current);
    };
    const limit = () => {
      const r = shown.current.range;
      if (r && axis === "time" && !compared) chart.current.setScale("x", { min: r.from / 1000 - shown.current.origin, max: r.to / 1000 - shown.current.origin });
    };
    chart.current = make();
    chart.current.limit = limit;
    limit();
    const wide = () => { if (box.current) chart.current.setSize({ width: Math.max(240, box.current.clientWidth), height }); };
    const watch = new ResizeObserver(wide);
    watch.observe(box.current);
    const again = () => { chart.current.destroy(); chart.current = make(); chart.current.limit = limit; limit(); };
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", again);
    addEventListener("theme", again);
    return () => { watch.disconnect(); scheme.removeEventListener("change", again); removeEventListener("theme", again); chart.current.destroy(); };
  }, [name, axis, log, compared]);
  useEffect(() => {
    const u = chart.current, r = now.range;
    u.setData(table(now), !r);
    u.limit();
  }, [points, now.smooth, now.other, now.range?.from, now.range?.to]);
  const all = () => { if (now.range) change({ from: null, to: null }); else chart.current.setScale("x", { min: null, max: null }); };
  return html`<div class="panel chart"><h3><span>${name}</span><span class="soft" ref=${said}>${says(newest)}</span></h3>
    <div ref=${box} role="img" aria-label=${`${name} over ${axis === "step" ? "steps" : "time"}, now ${format(newest?.[1])}`} onDblClick=${all}></div></div>`;
}

// Controls say how the curves are drawn; all of it is in the address.
function Controls({ axis, log, smooth, other, job, chosen }) {
  const [list] = useResource("/api/v1/job-rows?limit=50", () => false, 1000);
  return html`<div class="tools">
    <span role="group" aria-label="Axis">${["time", "step"].map((a) => html`<button aria-pressed=${axis === a ? "true" : "false"} onClick=${() => change({ x: a === "time" ? null : a, from: null, to: null })}>${a === "time" ? "Over time" : "Over steps"}</button>`)}</span>
    <button aria-pressed=${log ? "true" : "false"} onClick=${() => change({ y: log ? null : "log" })}>Logarithmic</button>
    <label>Smoothing <input type="range" min="0" max="0.99" step="0.01" value=${smooth} onInput=${(e) => change({ smooth: Number(e.target.value) || null })} /> <span class="soft num">${smooth.toFixed(2)}</span></label>
    <label>Compare with <select value=${other || ""} onChange=${(e) => change({ with: e.target.value || null })}><option value="">no other job</option>
      ${(list?.jobs || []).filter((j) => j.job !== job.job).map((j) => html`<option key=${j.job} value=${j.job} selected=${j.job === other}>${j.job}</option>`)}</select></label>
    ${chosen && html`<button onClick=${() => change({ from: null, to: null })}>Whole run</button>`}</div>`;
}

export function Metrics({ job, query }) {
  const axis = query.get("x") === "step" ? "step" : "time", log = query.get("y") === "log";
  const smooth = Math.max(0, Math.min(0.99, Number(query.get("smooth")) || 0)), other = query.get("with");
  const heard = (id) => ({ kind, data }) => kind === "progress" && data.job === id;
  const [series] = useResource(`/api/v1/jobs/${job.job}/metrics`, heard(job.job), 1000);
  const [others] = useResource(other ? `/api/v1/jobs/${other}/metrics` : null, heard(other), 1000);
  const curves = useMemo(() => Object.fromEntries(Object.entries(series?.metrics || {}).map(([n, p]) => [n, course(p, axis)])), [series, axis]);
  const second = useMemo(() => Object.fromEntries(Object.entries((other && others?.metrics) || {}).map(([n, p]) => [n, course(p, axis)])), [others, other, axis]);
  const names = Object.keys(curves).filter((n) => curves[n].length > 0 && !(axis === "step" && n === "step")).sort(order);
  if (series && names.length === 0) {
    return html`<section class="panel"><h2>Metrics</h2><p class="empty">${axis === "step" ? "No value was reported with its step." : html`No points yet. A program reports values with <${Command} text="regroup.report(step=step, loss=loss)" /> or Session.Report.`}</p>
      ${axis === "step" && html`<button onClick=${() => change({ x: null })}>Over time</button>`}
      ${job.reported && html`<dl class="pairs">${Object.entries(job.reported).map(([k, m]) => html`<dt>${k}</dt><dd>${number(m.value)} after step ${m.step}</dd>`)}</dl>`}</section>`;
  }
  // Two jobs are compared by the time since each began.
  const origin = (list) => (other && axis === "time" ? Math.min(...Object.values(list).map((p) => p[0]?.[0] ?? Infinity)) : 0);
  const from = origin(curves), otherFrom = origin(second), chosen = range(query);
  return html`<${Controls} axis=${axis} log=${log} smooth=${smooth} other=${other} job=${job} chosen=${chosen} />
    <div class="legend"><span><span class="swatch training"></span>${job.job}</span>${other && html`<span><span class="swatch other"></span>${other}</span>`}
      <span>dashed: a generation begins; even ones are grey${axis === "time" ? "; red: incidents" : "; steps that were made again are drawn once"}</span><span>drag to zoom, double-click for all</span></div>
    <div class="charts">${names.map((n) => html`<${Chart} key=${n} name=${n} points=${curves[n]} axis=${axis} log=${log} smooth=${smooth} origin=${from} other=${second[n]} otherOrigin=${otherFrom} with=${other} job=${job} range=${chosen} />`)}</div>`;
}
