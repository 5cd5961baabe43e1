// Lengths of time, of which the test says how the command line writes them, and a sentence with its
// times while it stands on a page.
import { freeze, sentence, span } from "./format.js";

for (const ms of [0, 0.004, 0.5, 1.25, 9.94, 10, 41, 999, 1000, 1149, 9949, 10000, 59999, 60000, 133000, 216000, 3599999, 3600000, 10920000, 86399999, 86400000, 356400000]) console.log(`${ms} ${span(ms)}`);

const begin = Date.parse("2026-11-21T10:30:00Z");
const ended = { parts: [{ text: "mnist-7f3a succeeded " }, { since: "2026-11-21T10:26:24Z" }, { text: " ago." }] };
const waits = { parts: [{ text: "the last call ends in " }, { until: "2026-11-21T10:30:12.5Z" }] };
for (const after of [0, 12000, 3600000]) {
  freeze(begin + after);
  console.log(`${after / 1000} s later: ${sentence(ended)} ${sentence(waits)}`);
}
