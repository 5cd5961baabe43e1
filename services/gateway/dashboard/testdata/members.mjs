// How many workers of a job train, or did last.
import { members } from "./format.js";

const worker = (rank, generation, state) => ({ rank, generation, state });
const show = (name, state, generation, workers, generations, min = 2, max = 4) => console.log(`${name}: ${members({ state, generation, workers, generations: generations.map((world) => ({ world })), spec: { workers: { min, max } } })}`);

show("waits", "waiting", 0, [], []);
show("trains", "running", 2, [worker(0, 2, "ready"), worker(1, 2, "ready"), worker(null, 0, "starting"), worker(2, 1, "ready"), worker(3, 2, "failure")], [3, 2]);
show("alone", "running", 1, [worker(0, 1, "ready")], [1], 1, 1);
show("more than are wanted", "running", 1, [worker(0, 1, "ready"), worker(1, 1, "ready"), worker(2, 1, "ready")], [3], 2, 2);
show("succeeded", "succeeded", 2, [worker(0, 2, "success"), worker(1, 2, "success")], [3, 2]);
show("stopped", "stopped", 1, [worker(0, 1, "stopped")], [3], 3, 3);
show("failed before the first generation", "failed", 0, [worker(null, 0, "failure")], []);
