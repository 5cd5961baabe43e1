// How times, spans and states are written; the words are those of the command line.

// skew is the gateway's clock less this one, in milliseconds.
export let skew = 0;

// setSkew learns it from a time that the gateway has sent. Less than two seconds is its resolution.
export function setSkew(text) {
  const at = Date.parse(text);
  if (!Number.isNaN(at) && Math.abs(at - Date.now()) > 2000) skew = at - Date.now();
}

let frozen = null;

// freeze stops now at a time of this clock: what comes after it nobody has observed. null = it goes on.
export function freeze(at) { frozen = at; }

// wall is the gateway's time; now is the same, or the last moment that was observed.
export const wall = () => Date.now() + skew;
export const now = () => (frozen ?? Date.now()) + skew;

// span is a length of time as the command line writes it; below 10 ms it has its fractions.
export function span(ms) {
  if (!Number.isFinite(ms)) return "-";
  ms = Math.max(0, ms);
  if (ms > 0 && ms < 10) return ms.toFixed(ms < 1 ? 2 : 1) + "ms";
  if (ms < 1000) return Math.round(ms) + "ms";
  const s = ms / 1000, m = Math.floor(s / 60), h = Math.floor(m / 60);
  const two = (v) => String(v).padStart(2, "0");
  if (s < 10) return s.toFixed(1) + "s";
  if (m < 1) return Math.floor(s) + "s";
  if (h < 1) return `${m}m${two(Math.floor(s) % 60)}s`;
  return h < 24 ? `${h}h${two(m % 60)}m` : `${Math.floor(h / 24)}d${two(h % 24)}h`;
}

export const since = (text) => (text ? now() - Date.parse(text) : NaN);

export const ago = (text) => (text ? (since(text) < 1000 ? "just now" : span(since(text)) + " ago") : "-");

// sentence is what the gateway says of a job in one, with the ages of its times now.
export const sentence = (why) => why.parts.map((p) => p.text ?? span(p.since ? since(p.since) : Date.parse(p.until) - now())).join("");

export const clock = (text) => (text ? new Date(text).toLocaleTimeString([], { hour12: false }) : "-");

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(v) {
  if (v === null || v === undefined) return "-";
  if (Number.isInteger(v) || Math.abs(v) >= 1000) return whole.format(v).replaceAll(",", " ");
  return String(Number(v.toPrecision(4)));
}

export function bytes(v) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; v >= 1024 && i < units.length - 1; i++) v /= 1024;
  return `${i > 0 && v < 10 ? v.toFixed(1) : Math.round(v)} ${units[i]}`;
}

// processors is how many of them are used.
export const processors = (v) => (v < 10 ? v.toFixed(1) : whole.format(v));

// machine is what a node uses of its processors and memory; empty = nothing was heard of late.
export function machine(n) {
  const u = n.usage;
  if (!u || since(u.at) > 20000) return [];
  return [`${processors(u.processors_used)} of ${plural(u.processors, "processor")}`, `${bytes(u.memory_used)} of ${bytes(u.memory)}`];
}

// unit is how the values of a metric are written, by the end of its name.
export function unit(name) {
  if (/(^|[_/ ])bytes$/.test(name)) return (v) => (v === null || v === undefined ? "-" : bytes(v));
  if (/(^|[_/ ])(seconds|secs|s)$/.test(name) && !name.endsWith("/s")) return (v) => (v === null || v === undefined ? "-" : span(v * 1000));
  if (/(^|[_/ ])ms$/.test(name)) return (v) => (v === null || v === undefined ? "-" : span(v));
  return number;
}

export const percent = (v) => (v === null || v === undefined ? "-" : (100 * v).toFixed(1) + " %");

const tones = {
  running: "good", succeeded: "good", success: "good", ready: "good", done: "good",
  waiting: "warn", finishing: "warn", stopping: "warn", starting: "warn", suspected: "warn",
  failed: "bad", failure: "bad", lost: "bad",
  left: "", drained: "",
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

export const ended = (job) => ["succeeded", "failed", "stopped"].includes(job.state);

// members is how many workers of a job train or, once it has ended, did in its last generation.
export function members(job) {
  const { min, max } = job.spec.workers, range = min === max ? max : `${min}-${max}`;
  const n = ended(job) ? job.generations.at(-1)?.world || 0
    : job.workers.filter((w) => w.rank !== null && w.generation === job.generation && !["success", "failure", "lost", "stopped"].includes(w.state)).length;
  if (ended(job) && n === 0) return "no worker has trained";
  return (n > max ? `${plural(n, "worker")}, ${range} wanted` : `${n} of ${range} worker${max === 1 ? "" : "s"}`) + (ended(job) ? " last" : "");
}

// redundancy is what is known of how much a job can lose: what was sent since it was read, if that is
// newer. What is survived stays unknown if a loss in its generation is known.
export function redundancy(job, progress) {
  const read = job.redundancy, sent = progress?.redundancy;
  if (!sent) return read;
  const key = (r) => [r.generation, r.commit.generation, r.commit.step, Date.parse(r.reported_at)];
  const [a, b] = [read ? key(read) : [-1], key(sent)];
  const first = a.findIndex((v, i) => v !== b[i]);
  if (first < 0 || a[first] > b[first]) return read;
  const unknown = sent.generation < job.generation || (read?.generation === sent.generation && read.losses === null);
  return unknown ? { ...sent, losses: null, node_losses: null } : sent;
}

// old is an age.
export const old = (text) => (text ? `${since(text) < 1000 ? "less than 1s" : span(since(text))} old` : "of unknown age");

// survives says how old the newest whole commit is and what it survives, in the words of the command line.
export function survives(r) {
  const what = r.losses === null ? "; what it survives is unknown until the workers report again"
    : r.losses === 0 ? ", survives no loss"
      : `, survives the loss of any ${plural(r.losses, "worker")}, ${r.node_losses === 0 ? "but of no node" : `or of any ${plural(r.node_losses, "node")}`}`;
  const checkpoint = r.checkpoint ? `; checkpoint: step ${number(r.checkpoint.step)}, ${old(r.checkpoint_at)}` : "";
  return `Newest whole commit: step ${number(r.commit.step)}, ${old(r.committed_at)}${what}${checkpoint}; reported ${ago(r.reported_at)}.`;
}

// The GPUs of a node in one line: how many of which model, the memory that they use, how busy they are, the hottest.
export function gpus(n) {
  const all = n.gpus || [];
  if (!all.length) return [];
  const models = new Map();
  for (const g of all) models.set(g.model || "?", (models.get(g.model || "?") || 0) + 1);
  const read = (name) => all.map((g) => g.reading?.[name]).filter((v) => v !== undefined);
  const used = read("used_mib"), busy = read("busy_percent"), hot = read("celsius");
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  const state = [
    used.length === all.length && `${(sum(used) / 1024).toFixed(1)}${all.every((g) => g.memory_mib) ? ` of ${(sum(all.map((g) => g.memory_mib)) / 1024).toFixed(1)}` : ""} GiB`,
    busy.length === all.length && `${Math.round(sum(busy) / busy.length)} % busy`, hot.length && `${Math.max(...hot)} °C`,
  ].filter(Boolean);
  return [[...models].map(([model, count]) => `${count} × ${model}`).join(", "), state.join(", ") || "state unknown", ...measured(n.preflight)];
}

// What was measured of the GPUs of a node before its first worker, in the words of the command line.
function measured(p) {
  if (!p) return [];
  const all = p.gpus || [], good = all.filter((g) => !g.failure), speed = good.map((g) => g.matmul_tflop_per_s || 0).filter((v) => v > 0);
  const failed = all.length - good.length, low = Math.min(...speed), high = Math.max(...speed);
  const digits = (v) => Number(v.toPrecision(4));
  return [[
    speed.length ? `${low < high ? `${digits(low)} to ` : ""}${digits(high)} TFLOP/s` : !failed && `not measured${p.problem ? `: ${p.problem}` : ""}`,
    failed && `${failed} failed`, p.all_reduce?.failure && "all-reduce failed",
  ].filter(Boolean).join(", ")];
}

// How many spares of a job a node has; empty = it keeps none.
export function spares(n, job) {
  const k = (n.spares || []).find((s) => s.job === job);
  return k ? `${k.ready} of ${plural(k.wanted, "spare")} ready` : "";
}
