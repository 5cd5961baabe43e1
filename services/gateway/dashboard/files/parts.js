// Small parts that several pages use.
import { html } from "htm/preact";
import { useState } from "preact/hooks";
import { causeText, span, tone } from "./format.js";

export const Badge = ({ state }) => html`<span class="badge ${tone(state)}">${state}</span>`;

export const Problem = ({ error }) => error && html`<p class="message bad" role="alert">${error.message}</p>`;

export const Card = ({ name, value, note }) => html`<div class="card"><div class="name">${name}</div><div class="value">${value}</div>${note && html`<div class="note">${note}</div>`}</div>`;

// Table can be scrolled by the keyboard where it does not fit.
export const Table = ({ name, head, children }) => html`<div class="scroll" role="region" aria-label=${name} tabindex="0"><table>
  <thead><tr>${head.map((h) => html`<th scope="col" class=${h.num ? "num" : null}>${h.num || h}</th>`)}</tr></thead><tbody>${children}</tbody></table></div>`;

// Action is a button that asks once more before it does something that cannot be undone.
export function Action({ text, sure, danger, run }) {
  const [state, set] = useState({ asks: false, busy: false, error: "" });
  const go = async () => {
    if (sure && !state.asks) return set({ asks: true, busy: false, error: "" });
    set({ asks: false, busy: true, error: "" });
    try { await run(); set({ asks: false, busy: false, error: "" }); } catch (e) { set({ asks: false, busy: false, error: e.message }); }
  };
  return html`<span><button class=${danger ? "danger" : null} disabled=${state.busy} onClick=${go} onBlur=${() => set((s) => ({ ...s, asks: false }))}>${state.asks ? sure : text}</button>
    ${state.error && html` <span role="alert" class="badge bad">${state.error}</span>`}</span>`;
}

const phases = [["notice", "detect"], ["abort", "abort"], ["judge", "decide"], ["regroup", "regroup"], ["back_off", "back-off"], ["sync", "restore"], ["first_step", "first step"]];

// Phases shows where the time of an incident went.
export function Phases({ incident }) {
  const total = incident.total_ms || 1;
  return html`<div class="phases" role="img" aria-label=${phases.map(([k, name]) => `${name} ${span(incident.phases_ms[k])}`).join(", ")}>
      ${phases.map(([k]) => incident.phases_ms[k] > 0 && html`<span class="phase ${k}" style=${{ flexGrow: incident.phases_ms[k] / total }}></span>`)}</div>
    <div class="legend">${phases.map(([k, name]) => html`<span><span class="swatch phase ${k}"></span>${name} ${span(incident.phases_ms[k])}</span>`)}</div>`;
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

export const lost = (i) => (i.steps_lost === undefined || i.steps_lost === null ? "steps lost unknown" : `${i.at_least ? "at least " : ""}${i.steps_lost} steps lost`);

export const IncidentHead = ({ incident, open }) => html`<strong>#${incident.incident}</strong> <span>${causeText(incident.cause)}</span> ${
  open ? html`<span class="badge bad">open</span>` : html`<span class="badge ${incident.to ? "good" : "bad"}">${incident.to ? `recovered in ${span(incident.total_ms)}` : "the job ended"}</span>`}`;
