// How the points of a metric, lists of seconds since 1970, value, generation and step, become a curve.

// course is the points by ascending time or, over steps, by ascending step: where steps were lost and
// made again, those that were kept. Points without a step have no place among steps.
export function course(points, axis) {
  if (axis !== "step") return points;
  const kept = [];
  for (const p of points) {
    if (!p[3]) continue;
    while (kept.length > 0 && kept.at(-1)[3] >= p[3]) kept.pop();
    kept.push(p);
  }
  return kept;
}

// xOf is where a point is: its step, or its time since an origin in seconds.
export const xOf = (axis, origin) => (axis === "step" ? (p) => p[3] : (p) => p[0] - origin);

// smoothed is the exponential moving average with the weight of what came before, 0 to 1, corrected
// for its beginning as Adam does (Kingma and Ba, 2015); null stays null.
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0, n = 0;
  return values.map((v) => {
    if (v === null) return null;
    sum = sum * weight + (1 - weight) * v;
    n++;
    return sum / (1 - weight ** n);
  });
}
