// Long lists: only the rows that are in sight are in the page.
import { html } from "htm/preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Head } from "./sorting.js";
import { titles, useCards } from "./parts.js";

const beyond = 20; // rows above and below what is in sight
const few = 200; // so many rows are simply all there

// useWindow returns which of the rows of an element, each of one height, are near to what is in
// sight. top is what comes before the first.
export function useWindow(ref, count, height, top = 0) {
  const [[from, to], set] = useState([0, few]);
  useEffect(() => {
    let asked = 0;
    const look = () => {
      asked = 0;
      if (!ref.current) return;
      const above = -ref.current.getBoundingClientRect().top - top;
      const first = Math.max(0, Math.floor(above / height) - beyond), last = Math.ceil((above + innerHeight) / height) + beyond;
      set(([a, b]) => (a === first && b === last ? [a, b] : [first, last]));
    };
    const soon = () => { asked ||= requestAnimationFrame(look); };
    addEventListener("scroll", soon, { capture: true, passive: true });
    addEventListener("resize", soon);
    look();
    return () => { cancelAnimationFrame(asked); removeEventListener("scroll", soon, { capture: true }); removeEventListener("resize", soon); };
  }, [count, height, top]);
  return count <= few ? [0, count] : [Math.min(from, count), Math.min(to, count)];
}

// LongTable is a Table of which the rows of many items are in the page only where they are in
// sight. Then they have one height: what is too long for it is cut off, and is in the title.
export function LongTable({ name, head, items, row }) {
  const body = useRef(null), table = useRef(null);
  useCards(table, titles(head));
  const [height, measure] = useState(40);
  const [from, to] = useWindow(body, items.length, height);
  const many = items.length > few;
  useLayoutEffect(() => {
    const one = many && body.current?.querySelector("tr:not(.gap)")?.getBoundingClientRect().height;
    if (one && Math.abs(one - height) > 0.5) measure(one);
  });
  const gap = (rows) => rows > 0 && html`<tr class="gap" aria-hidden="true"><td colspan=${head.length} style=${{ height: `${rows * height}px` }}></td></tr>`;
  return html`<div class="scroll" role="region" aria-label=${name} tabindex="0"><table ref=${table} class=${many ? "many" : null} aria-rowcount=${many ? items.length + 1 : null}>
    <thead><tr>${head.map((h) => html`<${Head} h=${h} />`)}</tr></thead>
    <tbody ref=${body}>${gap(from)}${items.slice(from, to).map(row)}${gap(items.length - to)}</tbody></table></div>`;
}
