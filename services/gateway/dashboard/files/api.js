// Requests to the gateway, and one stream of what changes, which all pages share.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { freeze, setSkew, skew } from "./format.js";

// connection is what is known of the stream: live; broken, it says nothing; blind, the gateway hears
// no broker; paused, nobody sees the page; starting. heard is when something was heard last, in
// milliseconds on this clock; null = now, or never.
export const connection = signal({ state: "starting", heard: null });
export const nextTry = signal(null); // when the stream is opened again, on this clock; null = it is being opened
const patience = 6000, pause = 3000; // milliseconds; a gateway says something every two seconds
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
  error.errors = answer.errors;
  throw error;
}

const listeners = new Set();

// listen calls fn with each item of the stream, {kind, data}, until the result is called.
export function listen(fn) {
  listeners.add(fn);
  return () => listeners.delete(fn);
}

let source, retry = null, newest = 0; // newest = when the stream last said something, on this clock

// connect opens the stream. It is opened again, after a pause, when it breaks or says nothing.
export function connect() {
  clearTimeout(retry);
  source?.close();
  newest = Date.now();
  nextTry.value = null;
  const mine = source = new EventSource("/api/v1/events?live=1");
  mine.onerror = () => {
    if (mine !== source) return;
    request("GET", "/api/v1/session").catch(() => {}); // a session that has ended shows the form
    broken();
  };
  for (const kind of ["fact", "change", "progress", "beat"]) {
    mine.addEventListener(kind, (e) => { if (mine === source) take({ kind, data: JSON.parse(e.data) }); });
  }
}

export function disconnect() {
  clearTimeout(retry);
  source?.close();
  source = null;
  silent("paused", newest);
}

function take(item) {
  newest = Date.now();
  if (item.kind === "beat") {
    setSkew(item.data.now);
    if (!item.data.connected) {
      silent("blind", Date.parse(item.data.since) - skew);
      return;
    }
    const before = connection.value.state;
    if (before !== "live") {
      connection.value = { state: "live", heard: null };
      freeze(null);
      tell({ kind: "again", data: {} });
      if (before !== "blind") request("GET", "/api/v1/session").then((who) => { me.value = who; }, () => {});
    }
  }
  tell(item);
}

// broken notes that the stream says nothing, and opens it again after the pause.
function broken() {
  source?.close();
  source = null;
  silent("broken", newest);
  clearTimeout(retry);
  if (loggedOut.value) return;
  nextTry.value = Date.now() + pause;
  retry = setTimeout(connect, pause);
}

// silent stops the pages' time at what was heard last, on this clock. Before anything was heard
// nothing is shown as known.
function silent(state, heard) {
  const before = connection.value;
  if (before.state === "starting" && state !== "blind") heard = null;
  connection.value = { state, heard: before.state === "live" || before.heard === null ? heard : before.heard };
  freeze(connection.value.heard);
}

setInterval(() => { if (source && Date.now() - newest > patience) broken(); }, 500);

function tell(item) {
  for (const fn of listeners) fn(item);
}

// useResource reads a path, if there is one, and again when an item concerns it, at most once per pause in
// milliseconds, and, for what no item tells, again and again at the interval every. The result is
// [value, error, again].
export function useResource(path, concerns, pause = 150, every = 0) {
  const [state, set] = useState({ value: null, error: null });
  const again = useRef(() => {});
  useEffect(() => {
    set({ value: null, error: null });
    if (!path) return undefined;
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
