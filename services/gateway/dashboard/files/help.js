// What the keys do, and the colours: light, dark, or those of the system.
import { html } from "htm/preact";
import { useEffect, useRef, useState } from "preact/hooks";

const keys = [["/", "search"], ["?", "this help"], ["g o", "overview"], ["g j", "jobs"], ["g n", "nodes"], ["g s", "system"], ["← →", "the next tab of a job, or the time of its timeline"], ["+ − 0", "zoom the timeline; all of it"], ["Esc", "close"]];

export function Help({ open, close }) {
  const dialog = useRef(null);
  useEffect(() => { if (open && !dialog.current.open) dialog.current.showModal(); }, [open]);
  return html`<dialog ref=${dialog} onClose=${close} aria-label="Keys">${open && html`<h2>Keys</h2><dl class="pairs">${keys.map(([k, t]) => html`<dt><kbd>${k}</kbd></dt><dd>${t}</dd>`)}</dl>
    <p class="soft">Every page is an address that can be sent to others, with its filters and its range of time. Pages: <a href="/openapi.json">the same for programs</a>.</p>
    <button onClick=${() => dialog.current.close()}>Close</button>`}</dialog>`;
}

const store = "regroup-theme", themes = ["light dark", "light", "dark"], names = { "light dark": "as the system", light: "light", dark: "dark" }, signs = { "light dark": "◐", light: "○", dark: "●" };

// theme applies the colours that were chosen in this browser.
export function theme() {
  const chosen = localStorage.getItem(store);
  document.documentElement.style.colorScheme = themes.includes(chosen) ? chosen : "light dark";
  return document.documentElement.style.colorScheme;
}

export function Theme() {
  const [now, set] = useState(theme);
  const next = () => {
    localStorage.setItem(store, themes[(themes.indexOf(now) + 1) % themes.length]);
    set(theme());
    dispatchEvent(new Event("theme"));
  };
  return html`<button class="small" title=${`Colours: ${names[now]}`} aria-label=${`Colours: ${names[now]}`} onClick=${next}><span aria-hidden="true">${signs[now]}</span></button>`;
}
