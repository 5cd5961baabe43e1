// Declarations that the fake's files share. Types and numbers are those of NCCL's manual.
#ifndef NCCL_FAKE_H
#define NCCL_FAKE_H

#include "fake.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 23007
#endif

typedef enum { ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError, ncclInProgress, ncclTimeout } ncclResult_t;
typedef enum { ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16 } ncclDataType_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg } ncclRedOp_t;
typedef struct { char internal[128]; } ncclUniqueId;

typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking;
#if FAKE_VERSION >= 21700
  int cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
#endif
#if FAKE_VERSION >= 21801
  int splitShare;
#endif
#if FAKE_VERSION >= 22602
  int trafficClass;
#endif
#if FAKE_VERSION >= 22703
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
#endif
#if FAKE_VERSION >= 22803
  int nChannelsPerNetPeer, nvlinkCentricSched;
#endif
#if FAKE_VERSION >= 22902
  int graphUsageMode, numRmaCtx;
#endif
#if FAKE_VERSION >= 23003
  int maxP2pPeers;
#endif
#if FAKE_VERSION >= 23005
  int graphStreamOrdering;
#endif
} ncclConfig_t;

enum { RANKS = 8, MAILBOX = 32 << 10 };

// One direction between two ranks.
struct mailbox {
  _Atomic uint32_t full; // bytes that wait to be taken, 0 = none
  char bytes[MAILBOX];
};

// Shared memory of a communicator's ranks: a file named by the unique id, all zero at first.
struct board {
  struct {
    _Atomic long pid;       // once it has joined
    _Atomic uint64_t where; // host and device, never 0
    _Atomic long finalized;
  } rank[RANKS];
  struct mailbox mailbox[RANKS][RANKS]; // [from][to]
};

typedef struct ncclComm {
  int rank, world, device;
  char path[120];
  struct board *board;
  long owner;               // the thread that created it
  _Atomic int live;         // 0 = freed
  _Atomic int state;        // ncclResult_t: an error, or success
  _Atomic int networkError; // an error that nothing clears
  _Atomic int working;      // a thread of the fake works on a call
  _Atomic int asked;        // how many polls are left before it is no longer in progress
  _Atomic int abort;
  _Atomic int pending; // jobs on streams
  _Atomic int finalized, revoked;
  _Atomic long collectives;
  struct job *held; // what is queued once asked is 0
  pthread_t worker;
  int worked; // worker must be joined
  struct ncclComm *parent; // while this child is being created: its abort counts too
} *ncclComm_t;

// comm.c
ncclResult_t check(ncclComm_t comm, const char *call); // a call that launches or manages
ncclResult_t fail(ncclResult_t code, const char *format, ...) __attribute__((format(printf, 2, 3)));
ncclComm_t newComm(const char *path, int world, int rank, int device);
void begin(ncclComm_t comm, void *(*work)(void *), void *argument); // runs work on a thread; comm is in progress
void joinWorker(ncclComm_t comm);
void dropHeld(ncclComm_t comm);
void release(ncclComm_t comm); // frees it, but for the memory, so that later calls on it are detected
int inProgress(ncclComm_t comm);
int gather(ncclComm_t comm); // opens the board and waits for all ranks; 0 if aborted
void rest(void);
size_t sizeOf(ncclDataType_t t);

// exchange.c
struct operation {
  enum { ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, REDUCESCATTER, SEND, RECV } kind;
  const char *send;
  char *recv;
  size_t count; // elements per rank and direction
  ncclDataType_t type;
  int op, root;
};
struct job {
  ncclComm_t comm;
  void *stream;
  int n;
  struct operation *operations;
};
void runJob(void *job);

#endif
