// Collectives and groups.
#define _GNU_SOURCE
#include "nccl.h"

#include <stdlib.h>

static __thread int depth;              // of groups on this thread
static __thread struct job *group;      // its calls
static __thread ncclResult_t groupFailed;

// launch queues a job, or holds it back until the state was polled often enough.
static ncclResult_t launch(struct job *job) {
  ncclComm_t c = job->comm;
  c->pending++;
  long polls = fakeKnobValue("in_progress");
  if (polls > 0) {
    c->held = job;
    c->asked = (int)polls;
    return ncclInProgress;
  }
  return fakeEnqueue(job->stream, runJob, job) ? ncclUnhandledCudaError : ncclSuccess;
}

static ncclResult_t add(ncclComm_t c, void *stream, struct operation o) {
  struct job *job = group;
  if (!job) {
    job = calloc(1, sizeof *job);
    *job = (struct job){c, stream, 0, NULL};
  }
  if (job->comm != c || job->stream != stream) return fail(ncclInvalidUsage, "the fake has groups of one communicator and stream only");
  job->operations = realloc(job->operations, (size_t)(job->n + 1) * sizeof o);
  job->operations[job->n++] = o;
  if (depth == 0) return launch(job);
  group = job;
  return ncclSuccess;
}

// call makes NCCL's checks and accepts the operation. in and out are how many times count goes in and comes out here.
static ncclResult_t call(const char *name, ncclComm_t c, void *stream, struct operation o, int in, int out) {
  ncclResult_t bad = check(c, name);
  while (fakeKnobValue("hang_call") && !c->abort) rest(); // knob: the call itself does not return
  if (!bad && fakeKnobValue("fail_call")) bad = fail((ncclResult_t)fakeKnobValue("fail_call"), "knob fail_call"); // knob: what calls return
  if (!bad && c->revoked) bad = fail(ncclInvalidUsage, "the communicator is revoked");
  if (!bad && (o.root < 0 || o.root >= c->world)) bad = fail(ncclInvalidArgument, "%s: rank %d", name, o.root);
  if (!bad && (o.op < 0 || o.op > ncclAvg)) bad = fail(ncclInvalidArgument, "%s: operation %d", name, o.op);
  size_t bytes = o.count * sizeOf(o.type);
  if (!bad && bytes && ((in && !fakeIsDevice(o.send, bytes * (size_t)in, c->device)) || (out && !fakeIsDevice(o.recv, bytes * (size_t)out, c->device))))
    bad = fail(ncclInvalidArgument, "%s: %zu bytes are not memory of device %d", name, bytes, c->device);
  if (!bad) bad = add(c, stream, o);
  // A communicator that does not block keeps the error of a launch.
  if (bad && bad != ncclInProgress) c->state = groupFailed = bad;
  if (!depth) groupFailed = ncclSuccess;
  return bad;
}

EXPORT ncclResult_t ncclGroupStart(void) {
  fakeNote("GroupStart");
  depth++;
  return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void) {
  fakeNote("GroupEnd");
  if (depth == 0) {
    fakeViolation("GroupEnd outside a group");
    return ncclInvalidUsage;
  }
  if (--depth) return ncclSuccess;
  struct job *job = group;
  ncclResult_t bad = groupFailed;
  group = NULL, groupFailed = ncclSuccess;
  if (bad && job) free(job->operations), free(job);
  return bad || !job ? bad : launch(job);
}

#ifndef FAKE_WITHOUT_ALLREDUCE
EXPORT ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t t, int op, ncclComm_t c, void *stream) {
  return call("AllReduce", c, stream, (struct operation){ALLREDUCE, send, recv, count, t, op, 0}, 1, 1);
}
#endif

EXPORT ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t t, int op, int root, ncclComm_t c, void *stream) {
  return call("Reduce", c, stream, (struct operation){REDUCE, send, recv, count, t, op, root}, 1, c->rank == root);
}

EXPORT ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t t, int root, ncclComm_t c, void *stream) {
  return call("Broadcast", c, stream, (struct operation){BROADCAST, send, recv, count, t, 0, root}, c->rank == root, 1);
}

EXPORT ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t t, ncclComm_t c, void *stream) {
  return call("AllGather", c, stream, (struct operation){ALLGATHER, send, recv, count, t, 0, 0}, 1, c->world);
}

EXPORT ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t t, int op, ncclComm_t c, void *stream) {
  return call("ReduceScatter", c, stream, (struct operation){REDUCESCATTER, send, recv, count, t, op, 0}, c->world, 1);
}

EXPORT ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t t, int peer, ncclComm_t c, void *stream) {
  return call("Send", c, stream, (struct operation){SEND, send, NULL, count, t, 0, peer}, 1, 0);
}

EXPORT ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t t, int peer, ncclComm_t c, void *stream) {
  return call("Recv", c, stream, (struct operation){RECV, NULL, recv, count, t, 0, peer}, 0, 1);
}
