// What the page of the nodes says of their GPUs, and of spares.
import { gpus, spares } from "./format.js";

const h100 = (reading) => ({ id: "GPU-a", model: "NVIDIA H100 80GB HBM3", memory_mib: 81559, reading });
const read = (used_mib, busy_percent, celsius) => ({ used_mib, busy_percent, celsius });
const show = (name, all) => console.log(`${name}: ${gpus({ gpus: all }).join(" | ") || "nothing"}`);

show("none", undefined);
show("all are known", [h100(read(1024, 90, 60)), h100(read(3072, 80, 71))]);
show("one is unknown", [h100(read(1024, 90, 60)), h100()]);
show("nothing is known", [{ id: "0" }, { id: "1" }]);
show("two models", [h100(read(0, 0, 30)), { id: "GPU-b", model: "NVIDIA GB10", reading: read(10, undefined, 35) }]);

const fast = (tflops, failure) => ({ matmul_tflop_per_s: tflops, failure });
const measured = (name, preflight) => console.log(`${name}: ${gpus({ gpus: [{ id: "0" }], preflight })[2]}`);

measured("measured", { gpus: [fast(655.26), fast(412.5)] });
measured("alike", { gpus: [fast(650), fast(650)] });
measured("one has failed", { gpus: [fast(650), fast(0, "wrong results")] });
measured("all have failed", { gpus: [fast(undefined, "hangs")] });
measured("their links have failed", { gpus: [fast(650)], all_reduce: { failure: "does not end" } });
measured("nothing was measured", { problem: "python3 has no torch" });

const kept = { spares: [{ job: "mnist-7f3a", wanted: 2, ready: 1, problem: "GPU 0: out of memory" }, { job: "b", wanted: 1, ready: 1 }] };
console.log(`spares: ${spares(kept, "mnist-7f3a")}; ${spares(kept, "b")}; ${spares(kept, "c") || "none"}; ${spares({}, "b") || "none"}`);
