// What came with later versions: children of communicators.
#define _GNU_SOURCE
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if FAKE_VERSION >= 21801
// A child that a thread of its parent creates.
struct childInit {
  ncclComm_t parent, child, *out;
};

static void *meet(void *argument) {
  struct childInit *b = argument;
  int met = gather(b->child);
  if (b->child->state) b->parent->state = b->child->state;
  if (met) atomic_store((_Atomic uintptr_t *)b->out, (uintptr_t)b->child); // only when it is complete
  else release(b->child);
  b->parent->working = 0;
  free(b);
  return NULL;
}

static ncclResult_t beginChild(ncclComm_t c, const char *path, int world, int rank, ncclComm_t *out) {
  struct childInit *b = calloc(1, sizeof *b);
  *b = (struct childInit){c, newComm(path, world, rank, c->device), out};
  b->child->parent = c;
  begin(c, meet, b);
  return ncclInProgress;
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *child, ncclConfig_t *config) {
  ncclResult_t bad = check(c, "CommSplit");
  if (bad) return bad;
  if (config) fakeViolation("a child with a configuration");
  if (c->pending) fakeViolation("CommSplit with operations under way");
  *child = NULL;
  if (color != 0 || key != c->rank) return fail(ncclInvalidArgument, "the fake splits into one part in the same order only");
  char path[120];
  snprintf(path, sizeof path, "%.80s.s", c->path);
  return beginChild(c, path, c->world, c->rank, child);
}
#endif

#if FAKE_VERSION >= 22703
EXPORT ncclResult_t ncclCommShrink(ncclComm_t c, int *excluded, int n, ncclComm_t *child, ncclConfig_t *config, int flags) {
  *child = NULL;
  if (flags & 1 && c->live) { // abort what runs, and only then be like any other call
    c->abort = 1;
    while (c->pending) rest();
    c->abort = 0;
  }
  ncclResult_t bad = check(c, flags & 1 ? "CommShrinkAbort" : "CommShrink");
  if (bad) return bad;
  if (config) fakeViolation("a child with a configuration");
  if (fakeKnobValue("fail_shrink") == c->rank + 1) return fail(ncclInternalError, "knob fail_shrink"); // knob: 1 + the rank that cannot be shrunk
  if (n <= 0) return fail(ncclInvalidArgument, "nobody is excluded");
  if (c->pending) fakeViolation("CommShrink with operations under way");
  char path[120];
  int at = snprintf(path, sizeof path, "%.80s.x", c->path), rank = c->rank;
  for (int i = 0; i < n; i++) {
    if (excluded[i] == c->rank || excluded[i] < 0 || excluded[i] >= c->world) return fail(ncclInvalidArgument, "rank %d is excluded", excluded[i]);
    rank -= excluded[i] < c->rank;
    at += snprintf(path + at, sizeof path - (size_t)at, "%d", excluded[i]);
  }
  return beginChild(c, path, c->world - n, rank, child);
}
#endif

#if FAKE_VERSION >= 22807
static void *revoke(void *argument) {
  ncclComm_t c = argument;
  while (c->pending) rest();
  c->abort = 0;
  c->state = ncclSuccess; // but an error of the network stays
  c->working = 0;
  return NULL;
}

EXPORT ncclResult_t ncclCommRevoke(ncclComm_t c, int flags) {
  fakeNote("CommRevoke");
  if (!c->live || flags) {
    fakeViolation("CommRevoke of a freed communicator, or with flags");
    return ncclInvalidArgument;
  }
  if (c->revoked || c->finalized) return fail(ncclInvalidArgument, "revoked or finalized before");
  c->revoked = 1;
  c->abort = 1;
  joinWorker(c);
  dropHeld(c);
  begin(c, revoke, c);
  return ncclInProgress;
}
#endif

// ---- for the test of the layout ----

#define FIELD(n) {#n, offsetof(ncclConfig_t, n)}
static const struct {
  const char *name;
  size_t offset;
} layout[] = {
    FIELD(size), FIELD(magic), FIELD(version), FIELD(blocking),
#if FAKE_VERSION >= 21700
    FIELD(cgaClusterSize), FIELD(minCTAs), FIELD(maxCTAs), FIELD(netName),
#endif
#if FAKE_VERSION >= 21801
    FIELD(splitShare),
#endif
#if FAKE_VERSION >= 22602
    FIELD(trafficClass),
#endif
#if FAKE_VERSION >= 22703
    FIELD(commName), FIELD(collnetEnable), FIELD(CTAPolicy), FIELD(shrinkShare), FIELD(nvlsCTAs),
#endif
#if FAKE_VERSION >= 22803
    FIELD(nChannelsPerNetPeer), FIELD(nvlinkCentricSched),
#endif
#if FAKE_VERSION >= 22902
    FIELD(graphUsageMode), FIELD(numRmaCtx),
#endif
#if FAKE_VERSION >= 23003
    FIELD(maxP2pPeers),
#endif
#if FAKE_VERSION >= 23005
    FIELD(graphStreamOrdering),
#endif
};

EXPORT int fakeConfigFields(void) { return sizeof layout / sizeof layout[0]; }
EXPORT const char *fakeConfigField(int i) { return layout[i].name; }
EXPORT long fakeConfigOffset(int i) { return (long)layout[i].offset; }
EXPORT long fakeConfigBytes(void) { return sizeof(ncclConfig_t); }
