// Small parts that several pages use.
import { html } from "htm/preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Head } from "./sorting.js";
import { causeText, plural, span, tone } from "./format.js";

export const Badge = ({ state }) => html`<span class="badge ${tone(state)}">${state}</span>`;

export const Problem = ({ error }) => error && html`<p class="message bad" role="alert">${error.message}</p>`;

export const Card = ({ name, value, note }) => html`<div class="card"><div class="name">${name}</div><div class="value">${value}</div>${note && html`<div class="note">${note}</div>`}</div>`;

// titles is the text of each column's head.
export const titles = (head) => head.map((h) => h.title || h.num || h);

// useCards gives each cell of a table the title of its column, with which it is shown where a row is
// a card: on a phone nothing has to be scrolled sideways.
export function useCards(ref, head) {
  useLayoutEffect(() => {
    for (const row of ref.current?.rows || []) {
      if (row.parentNode.nodeName !== "TBODY" || row.className === "gap") continue;
      [...row.cells].forEach((cell, i) => { if (cell.dataset.title !== head[i]) cell.dataset.title = head[i] || ""; });
    }
  });
}

// Table can be scrolled by the keyboard where it does not fit.
export function Table({ name, head, children }) {
  const table = useRef(null);
  useCards(table, titles(head));
  return html`<div class="scroll" role="region" aria-label=${name} tabindex="0"><table ref=${table}>
    <thead><tr>${head.map((h) => html`<${Head} h=${h} />`)}</tr></thead><tbody>${children}</tbody></table></div>`;
}

// Action is a button that asks once more before it does something that cannot be undone. It keeps its
// size, so that nothing moves under the pointer.
export function Action({ text, sure, danger, run }) {
  const [state, set] = useState({ asks: false, busy: false, error: "" });
  const go = async () => {
    if (sure && !state.asks) return set({ asks: true, busy: false, error: "" });
    set({ asks: false, busy: true, error: "" });
    try { await run(); set({ asks: false, busy: false, error: "" }); } catch (e) { set({ asks: false, busy: false, error: e.message }); }
  };
  return html`<span><button class="fixed ${danger ? "danger" : ""}" disabled=${state.busy} onClick=${go} onBlur=${() => set((s) => ({ ...s, asks: false }))}>
      <span class=${state.asks ? "hidden" : null}>${text}</span>${sure && html`<span class=${state.asks ? null : "hidden"}>${sure}</span>`}</button>
    ${state.error && html` <span role="alert" class="badge bad">${state.error}</span>`}</span>`;
}

const phases = [["notice", "notice"], ["abort", "abort"], ["judge", "judge"], ["back_off", "back-off"], ["regroup", "regroup"], ["sync", "sync"], ["first_step", "first step"]];

// silent is the time before an incident for which nobody has observed a step.
const silent = (i) => i.silence_ms || 0;

// extent is how long an incident was, with the silence before it.
export const extent = (i) => Math.max(1, i.total_ms + silent(i));

// Phases shows where the time of an incident went: as wide as it was long, beside the longest.
export function Phases({ incident, longest }) {
  const parts = [["silence", "not observed", silent(incident)], ...phases.map(([k, name]) => [k, name, incident.phases_ms[k] || 0])].filter(([, , ms]) => ms > 0);
  if (parts.length === 0) return null;
  return html`<div class="phases" role="img" aria-label=${parts.map(([, name, ms]) => `${name} ${span(ms)}`).join(", ")}>
      <div class="taken" style=${{ width: `${Math.max(0.5, (100 * extent(incident)) / longest)}%` }}>${parts.map(([k, , ms]) => html`<span class="phase ${k}" style=${{ flexGrow: ms }}></span>`)}</div></div>
    <div class="legend">${parts.map(([k, name, ms]) => html`<span><span class="swatch phase ${k}"></span>${name} ${span(ms)}</span>`)}</div>`;
}

// stepsLost is the sum over incidents: a number, "at least" one, or "unknown".
export function stepsLost(incidents) {
  const known = incidents.filter((i) => i.steps_lost !== undefined && i.steps_lost !== null);
  const n = known.reduce((sum, i) => sum + i.steps_lost, 0);
  if (known.length === incidents.length && known.every((i) => !i.at_least)) return n;
  return n === 0 ? "unknown" : `at least ${n}`;
}

// median of sorted numbers, of which there is at least one.
export const median = (sorted) => (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.floor(sorted.length / 2)]) / 2;

// silence is what nobody observed before an incident.
export const silence = (i) => (i.silence_ms ? ` · no step was observed for ${span(i.silence_ms)} before`
  : i.silence_unknown ? " · for how long nobody had observed it before is unknown" : "");

export const lost = (i) => (i.steps_lost === undefined || i.steps_lost === null ? "steps lost unknown" : `${i.at_least ? "at least " : ""}${plural(i.steps_lost, "step")} lost`);

export const IncidentHead = ({ incident, open }) => html`<strong>#${incident.incident}</strong> <span>${causeText(incident.cause)}</span> ${
  open ? html`<span class="badge bad">open</span>` : html`<span class="badge ${incident.to ? "good" : "bad"}">${incident.to ? `recovered in ${span(incident.total_ms)}` : "the job ended"}</span>`}`;
