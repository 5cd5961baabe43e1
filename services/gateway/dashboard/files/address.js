// The address after # says which page is shown, and how: it can be sent to others.

// route splits #/jobs/x/logs?q=1 into its words and its query.
export function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { words: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query || "") };
}

// address is a link to a page; parameters without a value are left out.
export function address(words, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, v]) => v !== null && v !== undefined && v !== ""));
  return "#/" + words.map(encodeURIComponent).join("/") + (query.size ? "?" + query : "");
}

// change sets parameters of the page that is shown, without a step back in the history.
export function change(parameters) {
  const { words, query } = route();
  history.replaceState(null, "", address(words, { ...Object.fromEntries(query), ...parameters }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

// range is the time that the address has chosen, in milliseconds since 1970; null = all of it.
export function range(query) {
  const [from, to] = ["from", "to"].map((name) => Number(query.get(name)) || null);
  return from && to && from < to ? { from, to } : null;
}

// around is a range of the address around a time, or from one to another, with some margin.
export function around(from, to = from) {
  const margin = Math.max(2000, (to - from) / 2);
  return { from: Math.floor(from - margin), to: Math.ceil(to + margin) };
}
