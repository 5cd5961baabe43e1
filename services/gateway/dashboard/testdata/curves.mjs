import { course, smoothed, xOf } from "./curves.js";

// Steps 20 and 30 were lost, and made again in generation 2; the first point has no step.
const points = [[100, 9, 1, 0], [101, 8, 1, 10], [102, 7, 1, 20], [103, 6, 1, 30], [104, 5, 2, 20], [105, 4, 2, 30], [106, 3, 2, 40]];
const print = (name, list) => console.log(name, JSON.stringify(list));
print("over time", course(points, "time").map(xOf("time", 100)));
print("over steps", course(points, "step").map((p) => [xOf("step", 0)(p), p[1]]));
print("not smoothed", smoothed([1, null, 3], 0));
print("smoothed", smoothed([4, null, 4, 8], 0.5));
print("of one value", smoothed([7], 0.99));
