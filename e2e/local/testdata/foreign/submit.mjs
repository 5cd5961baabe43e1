// Submits a job with nothing but a NATS client: node submit.mjs URL binary|structured SPEC-JSON
// Prints the first answer (accepted or rejected) that names our event, as one line of JSON.
import { connect, headers } from "@nats-io/transport-node";
import { jetstream, DeliverPolicy } from "@nats-io/jetstream";

const [url, mode, spec] = process.argv.slice(2);
const nc = await connect({ servers: url, timeout: 120_000 });
const js = jetstream(nc, { timeout: 20_000 });
// What is asked while a busy machine loses the connection gets no answer: it is asked again.
const again = async (ask) => {
  for (let left = 6; ; left--) {
    try {
      return await ask();
    } catch (err) {
      if (left === 0) throw err;
    }
  }
};
const id = `foreign-${process.pid}`;
const source = "/client/foreign";
const h = headers();
let body;
if (mode === "binary") {
  h.set("ce-specversion", "1.0");
  h.set("ce-id", id);
  h.set("ce-source", source);
  h.set("ce-type", "dev.regroup.job.submit.v1");
  h.set("ce-datacontenttype", "application/json");
  body = JSON.stringify({ spec: JSON.parse(spec) });
} else {
  h.set("Content-Type", "application/cloudevents+json");
  body = JSON.stringify({ specversion: "1.0", id, source, type: "dev.regroup.job.submit.v1", datacontenttype: "application/json", data: { spec: JSON.parse(spec) } });
}
const answers = await again(() => js.consumers.get("REGROUP_EVT", { deliver_policy: DeliverPolicy.New, filter_subjects: ["regroup.evt.job.*.submitted", "regroup.evt.job.*.rejected"] }));
const messages = await answers.consume();
const sent = await again(() => js.publish("regroup.cmd.job.submit", body, { headers: h, msgID: id })); // a command is carried out once, however often it is published
for await (const m of messages) {
  const cause = m.headers.get("ce-causationid");
  if (!cause.endsWith(id)) continue;
  const kind = m.headers.get("ce-type");
  console.log(JSON.stringify({ stored: sent.seq, kind, job: m.headers.get("ce-subject"), data: m.json() }));
  break;
}
await nc.close();
