// Communicators of the fake: creation, state, end.
#define _GNU_SOURCE
#include "nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char lastError[256];

ncclResult_t fail(ncclResult_t code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(lastError, sizeof lastError, format, args);
  va_end(args);
  return code;
}

void rest(void) { nanosleep(&(struct timespec){0, 50000}, NULL); }

EXPORT ncclResult_t ncclGetVersion(int *version) { return *version = FAKE_VERSION, ncclSuccess; }

EXPORT const char *ncclGetErrorString(ncclResult_t code) {
  static const char *text[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress", "timeout"};
  return code <= ncclTimeout ? text[code] : "unknown result code";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm) { return (void)comm, lastError; }

// ---- unique ids: a file name, and 128 bytes that must all arrive ----

static unsigned char filler(const char *path, int i) { return (unsigned char)(path[i % (int)strlen(path)] * 31 + i * 7); }

static void makeId(ncclUniqueId *id, const char *path) {
  for (int i = 0; i < 128; i++) id->internal[i] = (char)filler(path, i);
  strcpy(id->internal, path);
}

static int idIsWhole(const ncclUniqueId *id) {
  size_t n = strnlen(id->internal, 100);
  if (n == 0 || n == 100) return 0;
  for (int i = (int)n + 1; i < 128; i++)
    if ((unsigned char)id->internal[i] != filler(id->internal, i)) return 0;
  return 1;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static _Atomic int n;
  char path[100];
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(path, sizeof path, "%s/b%d-%d-%lx", fakeFolder(), getpid(), ++n, (long)now.tv_nsec);
  fakeNote("GetUniqueId");
  return makeId(id, path), ncclSuccess;
}

// ---- rules that NCCL states for callers ----

int inProgress(ncclComm_t c) { return c->working || c->asked > 0; }

ncclResult_t check(ncclComm_t comm, const char *call) {
  fakeNote(call);
  if (!comm || !comm->live) {
    fakeViolation("%s on a communicator that is %s", call, comm ? "freed" : "null");
    return ncclInvalidArgument;
  }
  if (fakeCurrentDevice() != comm->device) fakeViolation("%s of device %d with the context of %d", call, comm->device, fakeCurrentDevice());
  if (comm->owner && syscall(SYS_gettid) != comm->owner) fakeViolation("%s on another thread", call);
  if (inProgress(comm)) {
    fakeViolation("%s while another call is in progress", call);
    return fail(ncclInvalidArgument, "%s before the previous call is done", call);
  }
  return comm->networkError ? comm->networkError : comm->state;
}

// ---- boards ----

static int openBoard(ncclComm_t c) {
  int fd = open(c->path, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(struct board))) return 0;
  c->board = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return c->board != MAP_FAILED;
}

// where identifies a GPU as NCCL does: by host, or NCCL_HOSTID in its place, and bus id.
static uint64_t where(int device) {
  const char *host = fakeKnobValue("one_host") ? NULL : getenv("NCCL_HOSTID"); // knob: all ranks are on one host, whatever they say
  uint64_t h = 1469598103934665603u;
  for (; host && *host; host++) h = (h ^ (unsigned char)*host) * 1099511628211u;
  return (h ^ (uint64_t)device) * 1099511628211u | 1;
}

int gather(ncclComm_t c) {
  if (!openBoard(c)) {
    c->state = fail(ncclSystemError, "%s: %s", c->path, strerror(errno));
    return 1;
  }
  c->board->rank[c->rank].where = where(c->device);
  c->board->rank[c->rank].pid = getpid();
  for (int r = 0; r < c->world; r++)
    while (c->board->rank[r].pid == 0 || fakeKnobValue("hang_init")) { // knob: no rank ever connects
      if (c->abort || (c->parent && c->parent->abort)) return 0;
      rest();
    }
  c->parent = NULL;
  const char *many = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (FAKE_VERSION >= 23003 && many && atoi(many)) return 1;
  for (int r = 0; r < c->world; r++)
    for (int q = 0; q < r; q++)
      if (c->board->rank[r].where == c->board->rank[q].where) c->state = fail(ncclInvalidUsage, "Duplicate GPU detected : rank %d and rank %d", q, r);
  return 1;
}

// ---- creation ----

ncclComm_t newComm(const char *path, int world, int rank, int device) {
  ncclComm_t c = calloc(1, sizeof *c);
  c->rank = rank, c->world = world, c->device = device, c->live = 1;
  c->owner = syscall(SYS_gettid);
  snprintf(c->path, sizeof c->path, "%s", path);
  fakeCount("communicators", 1);
  return c;
}

void begin(ncclComm_t c, void *(*work)(void *), void *argument) {
  joinWorker(c);
  c->asked = (int)fakeKnobValue("in_progress"); // knob: how often each call is in progress when asked
  c->working = 1;
  c->worked = 1;
  pthread_create(&c->worker, NULL, work, argument);
}

void joinWorker(ncclComm_t c) {
  if (c->worked) pthread_join(c->worker, NULL);
  c->worked = 0;
}

static void *initialize(void *argument) {
  ncclComm_t c = argument;
  gather(c);
  c->working = 0;
  return NULL;
}

static long seen[24]; // the last configuration, in the order of the struct, NULL = 0

EXPORT long fakeConfigSeen(int field) { return seen[field]; }

// readConfig copies the fields that both sides know, and resets those that the caller's version lacks.
static ncclResult_t readConfig(const ncclConfig_t *given) {
  ncclConfig_t c;
  size_t size = given->size < sizeof c ? given->size : sizeof c;
  memset(&c, 0, sizeof c);
  memcpy(&c, given, size);
  if (c.magic != 0xcafebeef) return fail(ncclInvalidArgument, "config magic is %x", c.magic);
  memset(seen, 0, sizeof seen);
  int i = 0;
  seen[i++] = (long)given->size, seen[i++] = (long)c.version, seen[i++] = c.blocking;
#if FAKE_VERSION >= 21700
  seen[i++] = c.cgaClusterSize, seen[i++] = c.minCTAs, seen[i++] = c.maxCTAs, seen[i++] = c.netName != NULL;
  if (c.minCTAs == 0 || c.maxCTAs == 0 || (c.maxCTAs > 0 && c.minCTAs > c.maxCTAs)) return fail(ncclInvalidArgument, "minCTAs %d maxCTAs %d", c.minCTAs, c.maxCTAs);
#endif
#if FAKE_VERSION >= 22703
  seen[i++] = c.splitShare, seen[i++] = c.trafficClass, seen[i++] = c.commName ? (long)strlen(c.commName) : 0;
  seen[i++] = c.collnetEnable, seen[i++] = c.CTAPolicy, seen[i++] = c.shrinkShare, seen[i++] = c.nvlsCTAs;
#endif
#if FAKE_VERSION >= 22803
  if (c.version >= 22800) fakeViolation("a version of %d with fields that are not filled", c.version);
#endif
  if (c.blocking != 0) fakeViolation("a blocking communicator");
  return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int world, ncclUniqueId id, int rank, ncclConfig_t *config) {
  fakeNote("CommInitRankConfig");
  *comm = NULL;
  if (fakeCurrentDevice() < 0) fakeViolation("init without a context");
  if (!idIsWhole(&id)) return fail(ncclInvalidArgument, "the unique id did not arrive whole");
  if (rank < 0 || rank >= world || world > RANKS) return fail(ncclInvalidArgument, "rank %d of %d", rank, world);
  ncclResult_t bad = readConfig(config);
  if (bad) return bad;
  *comm = newComm(id.internal, world, rank, fakeCurrentDevice());
  begin(*comm, initialize, *comm);
  return ncclInProgress;
}

// ---- state ----

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
  if (!c || !c->live) {
    fakeViolation("ncclCommGetAsyncError on a communicator that is %s", c ? "freed" : "null");
    return ncclInvalidArgument;
  }
  if (c->owner && syscall(SYS_gettid) != c->owner) fakeViolation("ncclCommGetAsyncError on another thread");
  *state = ncclInProgress;
  if (c->working) return ncclSuccess;
  if (c->asked > 0 && --c->asked > 0) return ncclSuccess;
  struct job *held = c->held;
  c->held = NULL;
  if (held && fakeEnqueue(held->stream, runJob, held)) c->state = ncclUnhandledCudaError;
  *state = c->state ? c->state : c->networkError;
  return ncclSuccess;
}

EXPORT ncclResult_t ncclCommCount(ncclComm_t c, int *world) {
  ncclResult_t bad = check(c, "CommCount");
  return bad ? bad : (*world = c->world, ncclSuccess);
}

EXPORT ncclResult_t ncclCommUserRank(ncclComm_t c, int *rank) {
  ncclResult_t bad = check(c, "CommUserRank");
  return bad ? bad : (*rank = c->rank, ncclSuccess);
}

// ---- end ----

static void *finalize(void *argument) {
  ncclComm_t c = argument;
  while (c->pending && !c->abort) rest();
  c->board->rank[c->rank].finalized = 1;
  for (int r = 0; r < c->world; r++)
    while (!c->board->rank[r].finalized && !c->abort) rest();
  c->finalized = 1;
  c->working = 0;
  return NULL;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t c) {
  ncclResult_t bad = check(c, "CommFinalize");
  if (bad) return bad;
  if (c->finalized || c->revoked) return fail(ncclInvalidArgument, "finalized or revoked before");
  begin(c, finalize, c);
  return ncclInProgress;
}

void dropHeld(ncclComm_t c) {
  if (!c->held) return;
  free(c->held->operations);
  free(c->held);
  c->held = NULL;
  c->pending--;
}

void release(ncclComm_t c) {
  joinWorker(c);
  c->live = 0;
  dropHeld(c);
  while (c->pending) rest();
  if (c->board && c->board != MAP_FAILED) munmap(c->board, sizeof(struct board));
  fakeCount("communicators", -1);
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t c) {
  fakeNote("CommDestroy");
  if (!c->live || inProgress(c) || !(c->finalized || c->revoked)) {
    fakeViolation("CommDestroy of a communicator that is freed, busy or not finalized");
    return ncclInvalidArgument;
  }
  return release(c), ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t c) {
  fakeNote("CommAbort");
  if (!c->live) {
    fakeViolation("CommAbort of a communicator that is freed");
    return ncclInvalidArgument;
  }
  if (fakeCurrentDevice() != c->device) fakeViolation("CommAbort without its context");
  while (fakeKnobValue("hang_abort")) rest(); // knob: aborting does not end
  c->abort = 1;
  return release(c), ncclSuccess;
}
