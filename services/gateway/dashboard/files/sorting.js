// Tables that are sorted by a click on a column; the address says by which.
import { html } from "htm/preact";
import { change } from "./address.js";

// sorted is items by the column that the address names; columns are functions of an item by title.
export function sorted(items, query, columns) {
  const chosen = query.get("sort") || "", down = chosen.startsWith("-"), of = columns[chosen.replace(/^-/, "")];
  if (!of) return items;
  const compare = (a, b) => (typeof a === "number" ? a - b : String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true }));
  return [...items].sort((a, b) => (down ? -1 : 1) * compare(of(a), of(b)));
}

// heads is the head of a table whose columns with a function can be chosen.
export function heads(head, query, columns) {
  const chosen = query.get("sort") || "";
  return head.map((h) => {
    const title = h.num || h;
    if (!columns[title]) return h;
    const next = chosen === title ? `-${title}` : chosen === `-${title}` ? null : title;
    return { num: h.num, title, sort: chosen === title ? "ascending" : chosen === `-${title}` ? "descending" : "none", click: () => change({ sort: next }) };
  });
}

// Head is one cell of the head of a table.
export function Head({ h }) {
  if (!h.click) return html`<th scope="col" class=${h.num ? "num" : null}>${h.num || h}</th>`;
  return html`<th scope="col" class=${h.num ? "num" : null} aria-sort=${h.sort}><button class="sort" onClick=${h.click}>${h.title}<span aria-hidden="true">${{ ascending: " ▲", descending: " ▼", none: "" }[h.sort]}</span></button></th>`;
}
