// How times, spans and states are written; the words are those of the command line.

// skew is the gateway's clock less this one, in milliseconds.
export let skew = 0;

// setSkew learns it from the header Date of an answer. Less than two seconds is its resolution.
export function setSkew(date) {
  const at = Date.parse(date);
  if (!Number.isNaN(at) && Math.abs(at - Date.now()) > 2000) skew = at - Date.now();
}

export const now = () => Date.now() + skew;

export function span(ms) {
  if (!Number.isFinite(ms)) return "-";
  ms = Math.max(0, ms);
  if (ms < 1) return ms.toFixed(2) + " ms";
  if (ms < 10) return ms.toFixed(1) + " ms";
  if (ms < 1000) return Math.round(ms) + " ms";
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.round(s) + " s";
  const m = Math.floor(s / 60);
  if (m < 120) return m + " m " + Math.floor(s % 60) + " s";
  const h = Math.floor(m / 60);
  return h < 48 ? h + " h " + (m % 60) + " m" : Math.floor(h / 24) + " d";
}

export const since = (text) => (text ? now() - Date.parse(text) : NaN);

export const ago = (text) => (text ? span(since(text)) + " ago" : "-");

export const clock = (text) => (text ? new Date(text).toLocaleTimeString([], { hour12: false }) : "-");

export function number(v) {
  if (v === null || v === undefined) return "-";
  if (Number.isInteger(v)) return v.toLocaleString("en").replaceAll(",", " ");
  return Math.abs(v) >= 1000 ? v.toFixed(0) : String(Number(v.toPrecision(4)));
}

export function bytes(v) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; v >= 1024 && i < units.length - 1; i++) v /= 1024;
  return `${i > 0 && v < 10 ? v.toFixed(1) : Math.round(v)} ${units[i]}`;
}

export const percent = (v) => (v === null || v === undefined ? "-" : (100 * v).toFixed(1) + " %");

const tones = {
  running: "good", succeeded: "good", success: "good", ready: "good", done: "good",
  waiting: "warn", finishing: "warn", stopping: "warn", starting: "warn", suspected: "warn",
  failed: "bad", failure: "bad", lost: "bad",
  current: "good", behind: "warn", silent: "bad", offline: "bad", unknown: "bad",
};

export const tone = (state) => tones[state] || "";

export const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

// causeText describes the cause of an incident.
export function causeText(c) {
  if (!c) return "";
  const who = c.rank !== null && c.rank !== undefined && c.rank >= 0 ? `rank ${c.rank}` : "";
  const where = c.place ? `${c.place.node}/${c.place.slot}` : c.node || "";
  return [c.kind, [who, where].filter(Boolean).join(" on "), c.detail].filter(Boolean).join(" · ");
}

export const planned = (c) => c && ["start", "grow", "shrink"].includes(c.kind);

export const training = (job) =>
  ["succeeded", "failed", "stopped"].includes(job.state) ? 0
    : job.workers.filter((w) => w.rank !== null && w.generation === job.generation && !["success", "failure", "lost", "stopped"].includes(w.state)).length;
