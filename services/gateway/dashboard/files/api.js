// Requests to the gateway, and one stream of what changes, which all pages share.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { setSkew } from "./format.js";

export const connected = signal(false);
export const loggedOut = signal(false);
const me = signal(null); // who this browser asks as, once it is known

const roles = ["viewer", "submitter", "operator"];

// may reports whether the role is at least this one. Until it is known nothing that needs one is offered.
export const may = (role) => me.value !== null && roles.indexOf(me.value.role) >= roles.indexOf(role);

// mayChange reports whether a job may be changed: a submitter may change its own.
export const mayChange = (job) => may("operator") || (may("submitter") && job.by === me.value.source);

// request sends one; the error is the problem that the gateway has described.
export async function request(method, path, body, signalled) {
  const options = { method, headers: { Accept: "application/json" }, signal: signalled };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const res = await fetch(path, options);
  setSkew(res.headers.get("Date"));
  if (res.status === 204) return null;
  const answer = await res.json();
  if (res.ok) return answer;
  if (res.status === 401 && path !== "/api/v1/session") loggedOut.value = true;
  const error = new Error((answer.errors || []).map((e) => `${e.path}: ${e.message}`).join("; ") || answer.detail);
  error.status = res.status;
  throw error;
}

const listeners = new Set();

// listen calls fn with each item of the stream, {kind, data}, until the result is called.
export function listen(fn) {
  listeners.add(fn);
  return () => listeners.delete(fn);
}

let source;

// connect opens the stream, and again if it breaks; the browser sends the position itself.
export function connect() {
  source?.close();
  source = new EventSource("/api/v1/events?live=1");
  source.onopen = () => {
    if (!connected.value) tell({ kind: "again", data: {} });
    connected.value = true;
    request("GET", "/api/v1/session").then((who) => { me.value = who; }, () => {});
  };
  source.onerror = () => {
    connected.value = false;
    if (source.readyState !== EventSource.CLOSED) return;
    request("GET", "/api/v1/system").catch(() => {});
    setTimeout(() => { if (!loggedOut.value) connect(); }, 1000);
  };
  for (const kind of ["fact", "change", "progress"]) {
    source.addEventListener(kind, (e) => tell({ kind, data: JSON.parse(e.data) }));
  }
}

export function disconnect() {
  source?.close();
  connected.value = false;
}

function tell(item) {
  for (const fn of listeners) fn(item);
}

// useResource reads a path, and again when an item concerns it, at most once per pause in
// milliseconds, and, for what no item tells, again and again at the interval every. The result is
// [value, error, again].
export function useResource(path, concerns, pause = 150, every = 0) {
  const [state, set] = useState({ value: null, error: null });
  const again = useRef(() => {});
  useEffect(() => {
    const stop = new AbortController();
    let timer = null, busy = false, waiting = false;
    const read = async () => {
      if (busy) { waiting = true; return; }
      busy = true;
      try {
        const value = await request("GET", path, undefined, stop.signal);
        set({ value, error: null });
      } catch (error) {
        if (error.name !== "AbortError") set((s) => ({ value: error.status === 404 ? null : s.value, error }));
      }
      busy = false;
      if (waiting) { waiting = false; soon(); }
    };
    const soon = () => {
      if (timer === null && !stop.signal.aborted) timer = setTimeout(() => { timer = null; read(); }, pause);
    };
    again.current = read;
    set({ value: null, error: null });
    read();
    const off = listen((item) => { if (item.kind === "again" || concerns(item)) soon(); });
    const ticker = every > 0 ? setInterval(() => { if (!document.hidden) soon(); }, every) : null;
    return () => { off(); clearTimeout(timer); clearInterval(ticker); stop.abort(); };
  }, [path]);
  return [state.value, state.error, () => again.current()];
}

// ofJob: the item concerns a job.
export const ofJob = (id) => ({ kind, data }) => kind === "change" && data.kind === "job" && (!data.id || data.id === id);

// useNow draws again at an interval in milliseconds, for ages.
export function useNow(every = 1000) {
  const [, set] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => set((n) => n + 1), every);
    return () => clearInterval(timer);
  }, [every]);
}
