// Kernels of the fake: transfers through mailboxes in shared memory, and reductions.
#define _GNU_SOURCE
#include "nccl.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

size_t sizeOf(ncclDataType_t t) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return t <= ncclBfloat16 ? bytes[t] : 0;
}

static double get(ncclDataType_t t, const char *p, size_t i) {
  switch (t) {
  case ncclInt8: return ((int8_t *)p)[i];
  case ncclUint8: return ((uint8_t *)p)[i];
  case ncclInt32: return ((int32_t *)p)[i];
  case ncclUint32: return ((uint32_t *)p)[i];
  case ncclInt64: return (double)((int64_t *)p)[i];
  case ncclUint64: return (double)((uint64_t *)p)[i];
  case ncclFloat16: return (double)((_Float16 *)p)[i];
  case ncclFloat32: return ((float *)p)[i];
  case ncclFloat64: return ((double *)p)[i];
  case ncclBfloat16: {
    uint32_t bits = (uint32_t)((uint16_t *)p)[i] << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
  }
  }
  return 0;
}

static void put(ncclDataType_t t, char *p, size_t i, double v) {
  switch (t) {
  case ncclInt8: ((int8_t *)p)[i] = (int8_t)v; return;
  case ncclUint8: ((uint8_t *)p)[i] = (uint8_t)v; return;
  case ncclInt32: ((int32_t *)p)[i] = (int32_t)v; return;
  case ncclUint32: ((uint32_t *)p)[i] = (uint32_t)v; return;
  case ncclInt64: ((int64_t *)p)[i] = (int64_t)v; return;
  case ncclUint64: ((uint64_t *)p)[i] = (uint64_t)v; return;
  case ncclFloat16: ((_Float16 *)p)[i] = (_Float16)v; return;
  case ncclFloat32: ((float *)p)[i] = (float)v; return;
  case ncclFloat64: ((double *)p)[i] = v; return;
  case ncclBfloat16: {
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits += 0x7fff + (bits >> 16 & 1); // to even
    ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
  }
  }
}

// reduce combines the input of all ranks, in their order.
static void reduce(ncclComm_t comm, struct operation *o, char *out, char **in) {
  for (size_t i = 0; i < o->count; i++) {
    double v = get(o->type, in[0], i);
    for (int r = 1; r < comm->world; r++) {
      double w = get(o->type, in[r], i);
      switch (o->op) {
      case ncclProd: v *= w; break;
      case ncclMax: v = w > v ? w : v; break;
      case ncclMin: v = w < v ? w : v; break;
      default: v += w; // sum, average
      }
    }
    put(o->type, out, i, o->op == ncclAvg ? v / comm->world : v);
  }
}

// A transfer in one direction. Peers of one group take turns, so none waits for another.
struct transfer {
  int peer, out;
  char *at;
  size_t left;
};

static int advance(ncclComm_t comm, struct transfer *t) {
  struct board *b = comm->board;
  if (t->out) {
    struct mailbox *mailbox = &b->mailbox[comm->rank][t->peer];
    if (atomic_load(&mailbox->full)) return 0;
    size_t n = t->left < MAILBOX ? t->left : MAILBOX;
    memcpy(mailbox->bytes, t->at, n);
    t->at += n, t->left -= n;
    atomic_store(&mailbox->full, (uint32_t)n);
    return 1;
  }
  struct mailbox *mailbox = &b->mailbox[t->peer][comm->rank];
  size_t n = atomic_load(&mailbox->full);
  if (!n) return 0;
  if (n > t->left) n = t->left; // the other sends more: as wrong as with NCCL, but inside the buffer
  memcpy(t->at, mailbox->bytes, n);
  t->at += n, t->left -= n;
  atomic_store(&mailbox->full, 0);
  return 1;
}

// somebodyDied is what a network connection detects. Inside one host NCCL does
// not, and neither does this without the knob.
static int somebodyDied(ncclComm_t comm) {
  if (fakeKnobValue("notice_death") > 1) return 1;
  for (int r = 0; r < comm->world; r++)
    if (kill((pid_t)comm->board->rank[r].pid, 0) && errno == ESRCH) return 1;
  return 0;
}

// freezes says whether a launch stops in the middle: knob freeze_in: 1 = from the next launch on, n = from the n-th on.
static int freezes(void) {
  long n = fakeKnobValue("freeze_in");
  if (n > 1) fakeKnob("freeze_in", n - 1);
  return n == 1;
}

// move runs all transfers. 0 if the communicator was aborted.
static int move(ncclComm_t comm, struct transfer *t, int n) {
  int freeze = freezes();
  for (int idle = 0;;) {
    int left = 0, moved = 0;
    if (freeze > 1) { // it has moved a little
      if (comm->abort) return 0;
      rest();
      continue;
    }
    for (int i = 0; i < n; i++) {
      // Mailboxes are per pair and carry no name: the transfers of a pair run in order.
      int first = 1;
      for (int j = 0; j < i && first; j++) first = !(t[j].left && t[j].peer == t[i].peer && t[j].out == t[i].out);
      if (t[i].left && first) moved |= advance(comm, &t[i]);
      left |= t[i].left > 0;
    }
    if (comm->abort) return 0;
    if (freeze && moved) {
      freeze = 2;
      fakeNote("frozen");
    }
    if (!left && !fakeKnobValue("hang_collective")) return 1; // knob: collectives do not end
    if (moved) {
      idle = 0;
    } else if (++idle % 64 == 0) {
      if (fakeKnobValue("notice_death") && somebodyDied(comm)) { // knob: 1 = a dead process is an error, 2 = as if one were dead
        comm->networkError = ncclRemoteError;
        fail(ncclRemoteError, "connection closed by a peer of rank %d", comm->rank);
      }
      rest();
    }
  }
}

// run is one kernel: all operations of a group at once.
static int run(struct job *job) {
  ncclComm_t c = job->comm;
  int n = c->world, used = 0, ok;
  struct transfer *t = calloc((size_t)job->n * 2 * (size_t)n, sizeof *t);
  char *(*parts)[RANKS] = calloc((size_t)job->n, sizeof *parts); // scratch: the input of each rank
  for (int k = 0; k < job->n; k++) {
    struct operation *o = &job->operations[k];
    size_t bytes = o->count * sizeOf(o->type);
    if (o->kind == SEND || o->kind == RECV) {
      t[used++] = (struct transfer){o->root, o->kind == SEND, o->kind == SEND ? (char *)o->send : o->recv, bytes};
      continue;
    }
    int all = o->kind == ALLREDUCE || o->kind == ALLGATHER; // my whole input goes to all
    for (int r = 0; r < n; r++) {
      int gives = o->kind == BROADCAST ? c->rank == o->root : o->kind == REDUCE ? r == o->root : 1;
      int takes = o->kind == BROADCAST ? r == o->root : o->kind == REDUCE ? c->rank == o->root : 1;
      size_t at = all || o->kind == REDUCE || o->kind == BROADCAST ? 0 : (size_t)r * bytes;
      char *mine = (char *)o->send + at;
      if (gives) t[used++] = (struct transfer){r, 1, mine, bytes};
      if (takes) {
        parts[k][r] = malloc(bytes + 1);
        t[used++] = (struct transfer){r, 0, parts[k][r], bytes};
      }
    }
  }
  ok = move(c, t, used);
  for (int k = 0; k < job->n; k++) {
    struct operation *o = &job->operations[k];
    size_t bytes = o->count * sizeOf(o->type);
    for (int r = 0; ok && r < n; r++)
      if (parts[k][r] && o->kind == ALLGATHER) memcpy(o->recv + (size_t)r * bytes, parts[k][r], bytes);
    if (ok && o->kind == BROADCAST) memcpy(o->recv, parts[k][o->root], bytes);
    if (ok && (o->kind == ALLREDUCE || o->kind == REDUCESCATTER || (o->kind == REDUCE && c->rank == o->root)))
      reduce(c, o, o->recv, parts[k]);
    if (!ok && o->recv && o->kind != REDUCE) memset(o->recv, 0xA5, bytes); // the output of an aborted kernel is undefined
    for (int r = 0; r < n; r++) free(parts[k][r]);
  }
  free(parts);
  free(t);
  return ok;
}

void runJob(void *argument) {
  struct job *job = argument;
  ncclComm_t c = job->comm;
  if (!c->abort && run(job)) {
    // knobs: an error after so many launches, and which
    if (++c->collectives == fakeKnobValue("error_after")) {
      c->state = (int)fakeKnobValue("error_code");
      fail(c->state, "error after %ld launches", c->collectives);
    }
  }
  free(job->operations);
  free(job);
  c->pending--;
}
