// The workers of a job: what each does now, and which ranks are slow.
import { html } from "htm/preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { ofJob, useNow, useResource } from "./api.js";
import { ago, bytes, number, plural, processors, since, span } from "./format.js";
import { Badge, median } from "./parts.js";
import { LongTable } from "./window.js";

const every = 2000; // milliseconds between two reads of what no item of the stream tells
const stale = 20000; // what was heard longer ago says nothing of now

export function Workers({ job, slowest }) {
  const over = ["succeeded", "failed", "stopped"].includes(job.state);
  const [list] = useResource(`/api/v1/jobs/${job.job}/workers`, ofJob(job.job), 300, over ? 0 : every);
  useNow();
  const now = new Map((list?.workers || []).map((w) => [`${w.place.node}/${w.place.slot}`, w]));
  const all = [...job.workers].sort((a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9));
  const of = (w) => {
    const n = now.get(`${w.place.node}/${w.place.slot}`);
    return !over && n && n.pid === w.pid && n.generation === w.generation ? n : {};
  };
  const fresh = (text) => text && since(text) < stale;
  return html`<section class="panel"><h2>Workers</h2>
    ${slowest && html`<p class="message">The others wait for rank ${slowest.rank} ${(100 * slowest.share).toFixed(0)} % of the time.</p>`}
    ${!over && html`<${Pace} workers=${all.map(of).filter((n) => n.rank !== null && n.rank !== undefined && fresh(n.heard_at))} />`}
    ${all.length === 0 ? html`<p class="empty">No worker has started yet.</p>` : html`<${LongTable} name="Workers" head=${[
      { num: "Rank" }, "Node", { num: "Slot" }, "State", { num: "Step" }, "Heard", { num: "A step" }, { num: "Own part" }, { num: "Processors" }, { num: "Memory" }, { num: "Pid" }, { num: "Generation" }, { num: "Attempt" }, "Detail",
    ]} items=${all} row=${(w) => {
      const detail = `${w.exception ? `${w.exception.type}: ${w.exception.message || ""} ` : ""}${w.detail || ""}`, n = of(w), used = fresh(n.usage_at) ? n.usage : null;
      return html`<tr key=${`${w.place.node}/${w.place.slot}`}><td class="num">${w.rank ?? "-"}</td><td>${w.place.node}</td><td class="num">${w.place.slot}</td><td><${Badge} state=${w.state} /></td>
        <td class="num">${n.step ? number(n.step) : "-"}</td><td class="tight">${ago(n.heard_at)}</td><td class="num tight">${time(n.step_seconds)}</td><td class="num tight">${time(n.own_seconds)}</td>
        <td class="num">${used ? processors(used.processors) : "-"}</td><td class="num tight">${used ? bytes(used.memory) : "-"}</td>
        <td class="num">${w.pid || "-"}</td><td class="num">${w.generation || "-"}</td><td class="num">${w.attempt}</td><td class="wide" title=${detail}>${detail}</td></tr>`;
    }} />`}</section>`;
}

const time = (seconds) => (seconds === undefined ? "-" : span(1000 * seconds));

// Pace is a cell for each rank, the darker the longer a step takes it without what it waits for others.
function Pace({ workers }) {
  const known = workers.filter((w) => w.own_seconds !== undefined).sort((a, b) => a.rank - b.rank);
  const canvas = useRef(null), [at, point] = useState(null);
  const times = known.map((w) => w.own_seconds).sort((a, b) => a - b), most = times.at(-1), middle = known.length ? median(times) : 0;
  useLayoutEffect(() => {
    const c = canvas.current;
    if (!c) return;
    const box = c.getBoundingClientRect(), ratio = devicePixelRatio || 1, style = getComputedStyle(c);
    c.width = Math.max(1, Math.round(box.width * ratio));
    c.height = Math.max(1, Math.round(box.height * ratio));
    const draw = c.getContext("2d"), width = c.width / known.length, gap = width > 6 * ratio ? ratio : 0;
    draw.fillStyle = style.color;
    known.forEach((w, i) => {
      draw.globalAlpha = 0.12 + 0.88 * (most > 0 ? w.own_seconds / most : 0);
      draw.fillRect(i * width, 0, Math.max(ratio, width - gap), c.height);
    });
  });
  if (known.length < 2) return null;
  const slow = known.reduce((a, b) => (b.own_seconds > a.own_seconds ? b : a));
  const text = `Own time of a step, without what it waits for others: median ${time(middle)}, most ${time(most)} (rank ${slow.rank}${middle > 0 ? `, ${(most / middle).toFixed(1)} × the median` : ""}), of ${plural(known.length, "rank")}.`;
  const move = (e) => {
    const box = e.currentTarget.getBoundingClientRect();
    point(known[Math.min(known.length - 1, Math.max(0, Math.floor(((e.clientX - box.left) / box.width) * known.length)))]);
  };
  return html`<figure class="pace"><figcaption>${text}</figcaption>
    <canvas ref=${canvas} role="img" aria-label=${text} onPointerMove=${move} onPointerLeave=${() => point(null)}></canvas>
    <p class="soft" aria-hidden="true">${at ? `rank ${at.rank} on ${at.place.node}/${at.place.slot}: ${time(at.own_seconds)} of ${time(at.step_seconds)}` : `rank ${known[0].rank} to ${known.at(-1).rank}; the darker, the longer`}</p></figure>`;
}
