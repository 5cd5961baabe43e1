// The lines of a job's output that the page keeps.

// append adds lines, of which the newest so many are kept. One that is open is not finished, as a
// progress bar: the next line of its worker and stream takes its place, at the end.
export function append(all, more, most) {
  const of = (l) => `${l.place.node}/${l.place.slot} ${l.stream}`;
  const open = new Map();
  for (const l of all) if (l.open) open.set(of(l), l);
  const gone = new Set(), added = [];
  for (const l of more) {
    const source = of(l), before = open.get(source);
    if (before) gone.add(before);
    if (l.open) open.set(source, l);
    else open.delete(source);
    added.push(l);
  }
  const kept = [...all, ...added];
  return (gone.size ? kept.filter((l) => !gone.has(l)) : kept).slice(-most);
}
