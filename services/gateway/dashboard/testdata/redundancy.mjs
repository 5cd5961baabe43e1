// What the page of a job says of its redundancy: what was read, and what was sent since.
import { redundancy, survives } from "./format.js";

const now = Date.now();
Date.now = () => now;
const ago = (seconds) => new Date(Date.now() - 1000 * seconds).toISOString();
const report = (generation, step, reported, more) => ({ generation, commit: { generation, step }, reported_at: ago(reported), committed_at: ago(reported + 30), losses: 1, node_losses: 0, ...more });
const show = (name, generation, read, sent) => {
  const r = redundancy({ generation, redundancy: read }, sent && { redundancy: sent });
  console.log(`${name}: ${r ? survives(r) : "nothing"}`);
};

show("nothing was reported", 1, null);
show("nothing was read", 1, null, report(1, 5, 60));
show("nothing was sent", 1, report(1, 5, 60));
show("a later commit was sent", 1, report(1, 5, 60), report(1, 6, 90, { losses: 3, node_losses: 1 }));
show("an earlier commit was sent", 1, report(1, 5, 60), report(1, 4, 30));
show("of one commit the later report counts", 1, report(1, 5, 60), report(1, 5, 20, { losses: 0 }));
show("the same was sent", 1, report(1, 5, 60), report(1, 5, 60));
show("a worker was lost", 1, report(1, 5, 60, { losses: null, node_losses: null }), report(1, 6, 60));
show("the next generation has reported", 1, report(1, 5, 60, { losses: null, node_losses: null }), report(2, 5, 60, { losses: 2, node_losses: 2 }));
show("the next generation has not reported", 2, null, report(1, 5, 60));
show("an old generation was sent", 2, report(2, 5, 60), report(1, 9, 60));
show("a checkpoint", 1, report(1, 5, 60, { checkpoint: { generation: 1, step: 4 }, checkpoint_at: ago(300) }));
show("of unknown age", 1, report(1, 5, 60, { committed_at: undefined, checkpoint: { generation: 1, step: 4 } }));
