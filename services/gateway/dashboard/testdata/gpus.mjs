// What the page of the nodes says of their GPUs.
import { gpus } from "./format.js";

const h100 = (reading) => ({ id: "GPU-a", model: "NVIDIA H100 80GB HBM3", memory_mib: 81559, reading });
const read = (used_mib, busy_percent, celsius) => ({ used_mib, busy_percent, celsius });
const show = (name, all) => console.log(`${name}: ${gpus({ gpus: all }).join(" | ") || "nothing"}`);

show("none", undefined);
show("all are known", [h100(read(1024, 90, 60)), h100(read(3072, 80, 71))]);
show("one is unknown", [h100(read(1024, 90, 60)), h100()]);
show("nothing is known", [{ id: "0" }, { id: "1" }]);
show("two models", [h100(read(0, 0, 30)), { id: "GPU-b", model: "NVIDIA GB10", reading: read(10, undefined, 35) }]);
