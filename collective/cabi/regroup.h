/*
 * regroup.h: the C library of Regroup, libregroup.so. Collective operations among the ranks of a generation, and
 * elastic training: to survive the loss and the arrival of workers within one process.
 *
 * The rules of this interface (ABI):
 *
 *   - rg_abi() is major << 16 | minor. Another major number: do not use the library. A greater minor one: there is more
 *     of it; nothing that was there has changed. Structs begin with their size, as the caller knows it.
 *   - Every function returns RG_OK or another RG_... status, unless said otherwise. rg_last_error() says in words what
 *     went wrong in the calling thread's last call that failed, rg_lost_rank() who was lost.
 *   - Handles are numbers. One that was closed is RG_INVALID, never somebody else's. 0 is none.
 *   - Any thread may call anything, also several at once. Collective operations on a communicator run one at a time, in
 *     the order of the calls, which must be the same on all ranks.
 *   - Strings are UTF-8 and end with a zero; options are a JSON object, of which an unknown member is refused.
 *   - Durations are milliseconds; negative = without end.
 *   - Memory that an operation works on belongs to the caller and must stay until the operation has ended.
 *
 * In a process with a Python or other host: loading starts threads but does no I/O. Handlers of SIGINT, SIGTERM and all
 * other asynchronous signals stay those of the host. (The Go runtime inside has handlers for SIGSEGV, SIGBUS, SIGFPE,
 * SIGPIPE and SIGURG, and passes the first four on to the host's if they did not come from its own code.) A child that
 * was forked and goes on without exec cannot use the library: every call returns RG_FORKED. Its copies of our sockets
 * are closed at the fork, so that peers notice the end of the parent even while such children live.
 */
#ifndef REGROUP_H
#define REGROUP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RG_ABI_MAJOR 2
#define RG_ABI_MINOR 8

typedef uint64_t rg_endpoint;
typedef uint64_t rg_comm;
typedef uint64_t rg_request;
typedef uint64_t rg_elastic;
typedef uint64_t rg_gpu;

/* Status. */
enum {
    RG_OK = 0,
    RG_INVALID = 1,     /* an argument or option is wrong; nothing was done */
    RG_PEER_LOST = 2,   /* a rank died, left, or fell silent: rg_lost_rank(). The communicator is dead for good */
    RG_ABORTED = 3,     /* somebody gave the generation up. Likewise */
    RG_DIVERGED = 4,    /* ranks called different operations. Likewise */
    RG_REFUSED = 5,     /* a peer did not accept the connection */
    RG_CLOSED = 6,      /* this process has closed it */
    RG_TIMEOUT = 7,     /* not within the time given; what was waited for goes on */
    RG_FORKED = 8,      /* this process was forked from the one that loaded the library */
    RG_UNSUPPORTED = 9, /* not on this system */
    RG_FAILED = 10,     /* anything else */
    RG_PLANNED = 11,    /* elastic: committed, and the members are about to change: leave the training function */
    RG_STOPPED = 12,    /* elastic: committed, and the job is being stopped: likewise */
    RG_END = 13,        /* elastic: the training is complete */
    RG_STUCK = 14,      /* a GPU's library does not return: this process must be started again */
    RG_LEFT = 15,       /* elastic: the job goes on, or has ended, without this process */
};

/* Types of elements. */
enum {
    RG_INT8 = 1,
    RG_UINT8 = 2, /* also anything that is only moved */
    RG_INT16 = 3,
    RG_INT32 = 4,
    RG_INT64 = 5,
    RG_FLOAT16 = 6,
    RG_BFLOAT16 = 7,
    RG_FLOAT32 = 8,
    RG_FLOAT64 = 9,
};

/* Reductions. Averages of integers are truncated toward zero. */
enum { RG_SUM = 0, RG_AVERAGE = 1, RG_PRODUCT = 2, RG_MIN = 3, RG_MAX = 4 };

uint32_t rg_abi(void);
const char *rg_version(void); /* for people */
const char *rg_last_error(void);
int32_t rg_lost_rank(void); /* -1 = nobody */

/*
 * Endpoint: where this process takes connections, for all its communicators.
 *
 *   {"host": "127.0.0.1", "advertise": "", "port_min": 0, "port_max": 0, "encrypt": false}
 *
 * host is where to listen, advertise what peers are told to dial if that is something else; ports 0 = any. encrypt: what
 * follows the handshake is encrypted with keys derived from the token, which must not be empty; all ranks must agree.
 */
int rg_endpoint_new(const char *options, rg_endpoint *endpoint);
/* The address that peers dial, host:port. len is the size of the buffer. */
int rg_endpoint_address(rg_endpoint endpoint, char *buffer, size_t len);
int rg_endpoint_close(rg_endpoint endpoint);

/* Zeroed memory that ranks of this machine read in place: operations on it are several times as fast. It lives until
 * rg_free or rg_endpoint_close. */
int rg_alloc(rg_endpoint endpoint, int64_t bytes, void **memory);
int rg_free(rg_endpoint endpoint, void *memory);

/*
 * Communicator: one rank's membership in one generation.
 *
 *   {"job": "...", "generation": 1, "token": "...", "rank": 0, "world": 2, "peers": ["host:port", ...],
 *    "local_rank": 0, "local_size": 2, "connect_within_ms": 60000, "stall_after_ms": 11000, "chunk_bytes": 0,
 *    "streams": 1, "inline_bytes": 0, "no_shared_memory": false}
 *
 * peers are the addresses of all ranks. local_size ranks of this machine are adjacent, and this is number local_rank of
 * them; 0 = not known. For each job, an endpoint's generations ascend. rg_comm_new returns when the ranks are connected.
 */
int rg_comm_new(rg_endpoint endpoint, const char *options, rg_comm *comm);
/* Leaves. A running operation ends with RG_CLOSED; it waits at most 2 s for neighbours to read what was sent. */
int rg_comm_close(rg_comm comm);
/*
 * The same communicator once more, for operations of another caller, 2 to 15: the order of the operations is one, but they
 * are never taken for those of another origin, which are RG_DIVERGED on all ranks, nor their messages. Its operations, of
 * which those on memory of the host come after all that were started before. It ends with comm; rg_comm_close before that
 * ends neither comm nor what was started.
 */
int rg_comm_origin(rg_comm comm, int32_t origin, rg_comm *other);
/* Ends the generation on all ranks, within milliseconds: rank >= 0 is said to be lost, otherwise why is told. */
int rg_comm_abort(rg_comm comm, int32_t rank, const char *why);
/* RG_OK while it works, else why it does not. */
int rg_comm_failed(rg_comm comm);
/*
 * Waits until it fails or is closed, and returns why; RG_TIMEOUT: it still works. For a host whose ranks communicate by
 * means of their own: as in an operation, a rank whose process is silent for stall_after_ms is lost meanwhile.
 */
int rg_comm_wait_failed(rg_comm comm, int64_t within_ms);
/* {"job", "generation", "rank", "world", "busy"} */
int rg_comm_describe(rg_comm comm, char *buffer, size_t len);

/*
 * Operations. rg_start carries out or starts the one that op describes; fields that are not mentioned below are ignored.
 * The code, the count, the type, the reduction and the root must agree on all ranks.
 *
 * handle is where:
 *   a rg_comm       memory of the host
 *   a rg_gpu        memory of its GPU, behind the work that is queued on stream now: collective operations, but RG_BARRIER
 *   either, and op has a name: the ranks pair the operation up by that; see "Operations by name"
 *
 * With request == NULL the calling thread carries the operation out and rg_start returns when it has ended. Otherwise it is
 * started, to be carried out after those that were started before it, and *request is what rg_wait asks for. An operation
 * that is carried out while started ones wait comes after them. If one fails, the memory holds anything.
 *
 *   rg_op sum = {.size = sizeof sum, .code = RG_ALLREDUCE, .type = RG_FLOAT32, .recv = gradients, .count = n};
 *   int status = rg_start(comm, &sum, NULL);
 */
enum {
    /* Combines the ranks' recv, in place. With wire, float32 elements are sent as RG_FLOAT16 or RG_BFLOAT16. */
    RG_ALLREDUCE = 1,
    /* Likewise; segment r of the result stays at rank r, in its place (rg_segment). The rest of recv holds anything. By
     * name, count and row are those of rows, which are not divided. On a GPU send has room for world times count, of which
     * every rank gets its count elements of the result in recv, and send holds anything afterwards; recv may be this rank's
     * part of it. */
    RG_REDUCE_SCATTER = 2,
    /* The result is at rank peer; on the others recv holds anything afterwards. Not by name on the host. */
    RG_REDUCE = 3,
    /* Copies recv of rank peer to all. */
    RG_BROADCAST = 4,
    /* recv has room for world times count, send may be this rank's part of it. By name on the host: count rows of row
     * elements, of which every rank may give another number; the result is that of rg_wait_result. */
    RG_ALLGATHER = 5,
    /* Block i of send goes to rank i. send_counts and recv_counts are the elements of the world blocks of send and of
     * recv; NULL = count, which is that of all blocks together, in equal parts. By name on the host: send_counts is in
     * rows of row elements, and the result is that of rg_wait_result. They are copied. What a rank sends to another must be
     * what that receives from it; send and recv must not overlap. */
    RG_ALLTOALL = 6,
    RG_BARRIER = 7,
    /* A message of count elements, of one length on both sides, to or from rank peer. A receiver takes the next one with
     * its tag; with peer = -1 that of any rank, and *source is which, when the request has ended. These run beside the
     * collective operations, and have no name. */
    RG_SEND = 8,
    RG_RECV = 9,
    /* This rank starts nothing by name until all ranks have joined: it takes part in their allreduces by name with elements
     * that change nothing (an average divides by all ranks all the same) and in their barriers; other operations of theirs
     * by name are RG_INVALID. rows[0] of rg_wait_result is the rank that joined last. It has no name itself. */
    RG_JOIN = 10,
};

typedef struct rg_op {
    uint64_t size; /* sizeof(rg_op), set by the caller */
    int32_t code;  /* RG_ALLREDUCE, ... */
    int32_t type;  /* of the elements: RG_FLOAT32, ... */
    int32_t reduction;
    int32_t wire;    /* type of the elements on the wire, 0 = type */
    int32_t peer;    /* the root, or the other rank of a message */
    int32_t ordered; /* of a GPU by name: the request ends when the work queued on stream next waits for the operation */
    int64_t count;   /* in elements, or in rows */
    int64_t row;     /* elements of a row */
    int64_t tag;
    const void *send;
    void *recv;
    const int64_t *send_counts, *recv_counts;
    const char *name, *detail;
    void *stream;    /* of a GPU, a CUstream; NULL = CUDA's default stream */
    int32_t *source; /* of a message from any rank */
} rg_op;

int rg_start(uint64_t handle, const rg_op *op, rg_request *request);

/* With count elements, the ranks below count modulo world have one more than the others. */
int rg_segment(rg_comm comm, int64_t count, int32_t rank, int64_t *begin, int64_t *end);

/* Gathers bytes of different lengths: *all is a new piece of memory with those of rank 0, 1 and so on, to be given to
 * rg_release; sizes has room for world numbers. */
int rg_allgather_bytes(rg_comm comm, const void *send, int64_t bytes, void **all, int64_t *sizes);
void rg_release(void *memory);

/* How a started operation ended; RG_TIMEOUT = it has not. After any other answer the request is gone. */
int rg_wait(rg_request request, int64_t within_ms);
/* Hands a request over to rg_wait_any; it is not for rg_wait any more. */
int rg_watch(rg_request request);
/* Waits for the end of any request of this communicator that was handed to rg_watch, in the order in which they end:
 * *request is which, *status how it ended, and it is gone. RG_CLOSED when the communicator is closed and nothing is left. */
int rg_wait_any(rg_comm comm, int64_t within_ms, rg_request *request, int32_t *status);

/*
 * Operations by name. All ranks pair them up by their names, so they may start them in any order and from any thread;
 * they run beside all other operations. An operation is carried out only if the method, the type, the count, the
 * reduction, the root and detail, which is text of the caller's such as the shape, are the same on all ranks; otherwise it
 * fails on all of them with RG_INVALID, and the others go on. A name that is still pending is RG_INVALID. If the threads
 * on which the ranks' programs run (the first one of each process) all wait, each for something that another
 * rank has not started, what is pending fails with RG_DIVERGED, and the communicator works on. Those whose result must be
 * fetched, and those on a GPU, need a place for their request.
 */
/* {"cycle_ms": 1, "fusion_bytes": 0, "stall_warning_ms": 60000, "stall_limit_ms": 0, "deadlock_ms": 10000}: how long an
 * operation waits for others to be packed with it, unless somebody waits for it; up to how much is packed; when ranks
 * that have not started a name are named on standard error, when everything is ended on all ranks for that (RG_ABORTED),
 * and when a deadlock is called one. 0 = as usual, negative = never. To be called before the first operation by name,
 * with the same fusion_bytes on all ranks. */
int rg_named_options(rg_comm comm, const char *options);
/* The program has called an operation of this name with wrong arguments: it fails on all ranks that start it, with why. */
int rg_named_refuse(rg_comm comm, const char *name, const char *why);
/* How many deadlocks there were: names that are numbers must be counted anew after each, on all ranks. */
int rg_named_deadlocks(rg_comm comm, int64_t *count);
/* rg_wait that also fetches the result, if RG_OK: *data is to be given to rg_release, and rows has room for as many
 * numbers as there are ranks: how many rows came from each. */
int rg_wait_result(rg_request request, int64_t within_ms, void **data, int64_t *rows);

/* A communicator among some of the ranks, ascending; those, and no others, call it with the same name, each name once. It
 * has operations by name alone, in which rank i is ranks[i] of comm; rg_lost_rank tells the number in comm. The ranks are
 * connected by their first operation. It ends with comm, or with rg_comm_close before. */
int rg_subset(rg_comm comm, const char *name, const int32_t *ranks, int32_t len, rg_comm *subset);

/* Writes the phases of operations by name into a file, in the trace event format of Chrome, until rg_timeline_stop or the
 * end of the communicator. */
int rg_timeline_start(rg_comm comm, const char *path, int32_t mark_cycles);
int rg_timeline_stop(rg_comm comm);

/*
 * Elastic training. The place in the job comes from the environment that the node's agent has made (REGROUP_SOCKET ...);
 * without it there is one generation with this process alone. A process goes through this once:
 *
 *   rg_elastic_new, rg_elastic_tensor and rg_elastic_object for all of the state, rg_elastic_start
 *   while rg_elastic_next is RG_OK:       a generation: the state is the newest commit of all members
 *       train: operations on its communicator, rg_elastic_consume for each step, rg_elastic_commit now and then
 *       rg_elastic_leave                  with how it ended; after a loss the state goes back to its commit
 *
 *   {"samples": 60000, "seed": 1, "log": true, "join": false}
 *
 * samples are those of an epoch, 0 = not known: then nothing is accounted for. With "log" what happens to the training is written to
 * stderr from the level on that REGROUP_LOG_LEVEL says: debug, info, warn (the default) or error.
 *
 * With "join" it joins first and registers its state later: then
 *
 *   rg_elastic_new, rg_elastic_start
 *   rg_elastic_next                           a session of another stage than RG_TRAINING
 *       RG_TOGETHER: operations with all ranks, each noted by rg_elastic_prologue_add
 *       otherwise:   the results of those operations, from rg_elastic_prologue_get
 *       rg_elastic_data, rg_elastic_tensor and rg_elastic_object for all of the state
 *       rg_elastic_leave                      RG_OK = the state is registered; after a loss there is another such session
 *   and on as above
 *
 * After rg_elastic_leave with RG_OK the communicator of the session stays: for the training in the same generation, and when the
 * training is complete, until rg_elastic_close.
 */
int rg_elastic_new(const char *options, rg_elastic *elastic);
/* Memory that is part of the state. Commits read it, restoring writes it. It must stay until rg_elastic_close. */
int rg_elastic_tensor(rg_elastic elastic, const char *name, void *memory, int64_t bytes);
/* Marks such memory as live, or in a session of the stage RG_ARRANGING the parts of this name: from one rg_elastic_commit_live to
 * rg_elastic_changed nothing changes it. */
int rg_elastic_live(rg_elastic elastic, const char *name);
/* rg_elastic_live of parts that are elsewhere while they are used, like on a GPU. After rg_elastic_commit_live they may still be on their
 * way to the memory that is registered, until rg_elastic_brought: any thread calls it, also if they never arrive, with ok = 0, which fails
 * the next commit of this process. When it returns that memory may change. */
int rg_elastic_away(rg_elastic elastic, const char *name);
int rg_elastic_brought(rg_elastic elastic, int32_t ok);
/* Bytes that are part of the state. Before the start it is registered, afterwards only set. They are copied. */
int rg_elastic_object(rg_elastic elastic, const char *name, const void *bytes, int64_t len);
/* What the object is. *bytes is to be given to rg_release. */
int rg_elastic_object_get(rg_elastic elastic, const char *name, void **bytes, int64_t *len);
/* The data set that the state is over, as in the options; where the state is registered. With recording != 0 steps end with
 * rg_elastic_record instead of rg_elastic_consume. */
int rg_elastic_data(rg_elastic elastic, uint64_t samples, uint64_t seed, int32_t recording);
/* Notes the result of an operation before the state is registered, the same on all ranks. It is copied. */
int rg_elastic_prologue_add(rg_elastic elastic, const void *bytes, int64_t len);
/* An entry of what was noted, here or by others, from 0; RG_END = there are not that many. *bytes is to be given to rg_release. */
int rg_elastic_prologue_get(rg_elastic elastic, int64_t index, void **bytes, int64_t *len);
int rg_elastic_start(rg_elastic elastic);

/*
 * The state is sharded: each rank has parts of global tensors, which it registers anew in each generation, and copies other ranks keep
 * a copy of each. Or copies is 0, and groups of parity + 1 ranks or more keep parity for each other, in 1 / parity of the memory of a
 * copy: one rank of each may be lost. Called while the state is registered. Before each session of the stage RG_TRAINING
 * rg_elastic_next then returns one of the stage RG_ARRANGING, in the same generation and with the same communicator:
 *
 *   rg_elastic_next                       RG_ARRANGING: what is not sharded is in sync
 *       rg_elastic_shard for every part of this rank
 *       rg_elastic_leave                  RG_OK = all parts are registered
 *   rg_elastic_next                       RG_TRAINING: the parts have the newest commit of which the ranks have everything; if there
 *                                         was no commit, what was in them when they were registered
 */
int rg_elastic_sharded(rg_elastic elastic, int32_t copies, int32_t parity);

/* A part of a global tensor: in each of dims dimensions extent elements of shape, from offset on. */
typedef struct rg_shard {
    uint64_t size; /* sizeof(rg_shard), set by the caller */
    const char *name, *type; /* type: of the elements, in the words of the caller; the same on all ranks */
    int32_t width;           /* bytes of an element */
    int32_t dims;
    const int64_t *shape, *offset, *extent; /* a rank without a part of the tensor registers one of no elements */
    void *memory;  /* row-major; it must stay until the next session of RG_ARRANGING or rg_elastic_close */
    int64_t bytes; /* of it */
    /* 1 = it was the memory of the same part in the session of RG_ARRANGING before, and nothing has written to it since the last
     * rg_elastic_next that returned RG_TRAINING, rg_elastic_commit or rg_elastic_restore that was without error: if the training goes
     * on from there, it is not filled. 0 also if size ends before this. */
    int32_t unchanged;
} rg_shard;

int rg_elastic_shard(rg_elastic elastic, const rg_shard *shard);

/* How far the ranks of a session are. */
enum {
    RG_TRAINING = 0, /* the state is in sync */
    RG_TOGETHER = 1, /* nobody has registered its state */
    RG_LATE = 2,     /* others have, and wait: an operation would meet nobody */
    RG_EXCLUDED = 3,    /* this process is in no generation yet, comm is 0, and its place is what to expect */
    RG_ARRANGING = 4    /* all register their parts of a sharded state with rg_elastic_shard */
};

typedef struct rg_session {
    uint64_t size; /* sizeof(rg_session), set by the caller */
    uint64_t generation;
    rg_comm comm; /* not to be closed; it ends with rg_elastic_leave */
    int32_t rank, world, local_rank, local_size, cross_rank, cross_size;
    uint64_t step; /* that the state has behind it */
    int32_t stage, reserved;
    char traceparent[56]; /* W3C trace context for spans of this process in the generation; "" = none */
} rg_session;

/* Waits for the next generation. RG_TIMEOUT: ask again. RG_END: the training is complete. RG_STOPPED, RG_LEFT: the job was stopped, or goes
 * on or has ended without this process; what it holds is not the result. Anything else: it failed. */
int rg_elastic_next(rg_elastic elastic, int64_t within_ms, rg_session *session);
/* How the training function ended: RG_OK = the work is complete; RG_PLANNED or RG_STOPPED = as a commit said; RG_PEER_LOST
 * = a member was lost; anything else = it failed with why, for good. */
int rg_elastic_leave(rg_elastic elastic, int32_t how, const char *why);
/* Ends a step, on all ranks: they consumed the next total samples, this one those with these indices; total 0 = a step
 * without an account. */
int rg_elastic_consume(rg_elastic elastic, int64_t total, const int64_t *indices, int64_t len);
/* Ends a step of this rank alone, which trained on these samples of an epoch; none where no data was given. It talks to nobody: the
 * next commit puts together what the ranks have recorded, each at its own pace. */
int rg_elastic_record(rg_elastic elastic, uint64_t epoch, const int64_t *indices, int64_t len);
/* This process was asked to end: the next rg_elastic_commit or rg_elastic_check_updates tells all ranks. May be called at any time,
 * also by a handler of signals that is not the kernel's own. */
int rg_elastic_stop(rg_elastic elastic);
/* Whether a commit is due, agreed on by all ranks: RG_OK = no, RG_PLANNED or RG_STOPPED as that commit would answer. */
int rg_elastic_check_updates(rg_elastic elastic);
/* Makes the state one to return to, on all ranks at the same step. May return RG_PLANNED or RG_STOPPED, having committed. */
int rg_elastic_commit(rg_elastic elastic);
/* rg_elastic_commit without a copy of what is live (rg_elastic_live): that is the commit until it changes. All ranks make copies if one
 * calls rg_elastic_commit, if the members change, and from time to time, in case that a loss comes between a change and the commit on all
 * ranks: then the last copy is all that there is.
 *
 *   forward, backward, their operations     a loss: back to the last commit
 *   rg_elastic_changed, optimizer's step
 *   rg_elastic_commit_live                  a loss: the state counts as committed, as it is
 *
 * Parts of a sharded state are copied all the same, those that are live until rg_elastic_changed returns. */
int rg_elastic_commit_live(rg_elastic elastic);
/* Agrees now, on all ranks, on the commit that follows, and sets *copies to 1 if that copies what is live, else to 0: always, unless live
 * is 1 and it is rg_elastic_commit_live. Where what is live is elsewhere than in the memory that is registered, like on a GPU, it is
 * brought there if so, or in a sharded state may be brought later if not (rg_elastic_away); and before rg_elastic_unchanged, before
 * rg_elastic_restore if it has not changed since the last commit, and before rg_elastic_leave. */
int rg_elastic_agree(rg_elastic elastic, int32_t live, int32_t *copies);
/* What this rank has to say in the next commit, which then waits for nobody: RG_BALLOT values, of which the greatest on all ranks count,
 * found by an operation that no rank completes before all have what the step needs of others, such as one after those of the gradients.
 * RG_END = there is nothing to agree on, on all ranks: the last commit made copies, or the data is recorded.
 *
 *   rg_elastic_ballot, RG_ALLREDUCE with RG_MAX, rg_elastic_agreed
 *   optimizer's step
 *   rg_elastic_commit_live
 *
 * If the operation fails because a peer is lost the step can be made, without rg_elastic_agreed. */
#define RG_BALLOT 8
int rg_elastic_ballot(rg_elastic elastic, int64_t values[RG_BALLOT]);
int rg_elastic_agreed(rg_elastic elastic, const int64_t greatest[RG_BALLOT]);
/* What must be equal on all ranks at their next commits, as a hash. A commit where it is not is RG_DIVERGED on all of them. */
int rg_elastic_alike(rg_elastic elastic, uint64_t hash);
/* Says that what is live has changed since the last commit, or is about to, and waits until parts are copied. rg_elastic_consume does so
 * too. At the latest before rg_elastic_leave. */
int rg_elastic_changed(rg_elastic elastic);
/* Parts that are live have changed without that, and the last commit may have been copying them: it is none any more, for all ranks. If
 * one is lost before the next they go on from the one before. */
int rg_elastic_withdraw(rg_elastic elastic);
/* A commit may have what a member has computed wrongly, which is found out later. So an older one is kept that is known to be right. All
 * ranks call these at the same steps:
 *
 *   rg_elastic_copy_next    makes the next commit a copy, also of what is live
 *   rg_elastic_hold         keeps the newest commit until it is known; sets *held to 0 if it is no copy, or the state is sharded
 *   rg_elastic_verify       no member computes wrongly, or did before what is held: that is verified now
 *   rg_elastic_distrust     one does: from the next generation on the newest commit is the verified one, whose step is put into *step,
 *                           or -1 if there is none, and the newest stays what it is */
int rg_elastic_copy_next(rg_elastic elastic);
int rg_elastic_hold(rg_elastic elastic, int32_t *held);
int rg_elastic_verify(rg_elastic elastic);
int rg_elastic_distrust(rg_elastic elastic, int64_t *step);
/* Sets *same to 1 if what is live is as in the last commit that was copied, which must be the newest, else to 0. */
int rg_elastic_unchanged(rg_elastic elastic, int32_t *same);
/* After a loss before or in rg_elastic_commit_live, when all other ranks have completed the step too: the state as it is counts as
 * committed, unless what is live has not changed since the last commit. */
int rg_elastic_commit_alone(rg_elastic elastic);
/* rg_elastic_record for other ranks, for rg_elastic_commit_alone: what they have trained on since the last commit. */
int rg_elastic_record_for(rg_elastic elastic, uint64_t epoch, const int64_t *indices, int64_t len);
/* Back to the last commit, on this rank. */
int rg_elastic_restore(rg_elastic elastic);
/* Metrics as a JSON object of numbers, shown with the job. */
int rg_elastic_report(rg_elastic elastic, const char *metrics);
/* {"samples", "epochs": [{"epoch", "count", "sum", "done"}], "error"}: the account of samples; error = "" if it proves that
 * every sample of every finished epoch was consumed once. */
int rg_elastic_ledger(rg_elastic elastic, char *buffer, size_t len);
/* Ends what goes on. Memory of the state is not used any more when it returns. */
int rg_elastic_close(rg_elastic elastic);

/*
 * GPU: operations on memory of NVIDIA GPUs, one GPU per rank. NCCL and the CUDA driver are looked for in this call, and
 * not before. All ranks of the communicator call it:
 *
 *   {"device": 0, "local_rank": 0, "local_size": 1, "chunk_bytes": 0, "search": ["/folder", ...], "absent": ""}
 *
 * device is its number among those that CUDA_VISIBLE_DEVICES leaves; local_size ranks of this machine are adjacent, and
 * this is number local_rank of them; search are folders in which NCCL may be; absent says why this rank has no GPU.
 *
 * RG_UNSUPPORTED, on all ranks: one of them has none, and rg_last_error says which and why. RG_INVALID, likewise: they do
 * not fit together. The communicator works on in both cases. After anything else that is not RG_OK it is dead.
 *
 * before is this process's rg_gpu of an earlier generation, 0 = none. With RG_OK it is gone, and NCCL goes on as it was,
 * or without those that were lost, where it can. Else it stays open.
 */
int rg_gpu_open(rg_comm comm, const char *options, rg_gpu before, rg_gpu *gpu);
/* Operations on its memory are those of rg_start with this handle. With request == NULL they return when the work queued on
 * the stream next waits for them: a failure that comes later is told by the calls that follow. A request ends when the GPU
 * has done the operation, or when it has failed and the GPU leaves the memory alone. They come in the same order on all
 * ranks, and run beside all operations on the host's memory. By name they are carried out when all ranks have started
 * them, behind the work queued on the stream then. */
/* {"engine", "nccl", "driver", "from"}, for people. */
int rg_gpu_describe(rg_gpu gpu, char *buffer, size_t len);
/* Waits for what was started, at most 10 s. Before rg_comm_close, on all ranks of the machine; or after it. */
int rg_gpu_close(rg_gpu gpu);

/* Indices of samples at len places from position on of an epoch's order, a permutation of 0 to samples-1. */
int rg_permutation(uint64_t samples, uint64_t seed, uint64_t epoch, uint64_t position, int64_t *indices, int64_t len);

/* A gradient, and what is made of it: integers that are added to len totals of int64_t, or put in their place; or a copy
 * of the floats. The integers are values * 2^shift, each rounded to nearest, ties to even: sums of them do not depend on
 * the order. */
typedef struct rg_fixed {
    void *to;
    const float *values;
    int64_t len;
    int32_t shift; /* -1022 to 1023 */
    int32_t how;
    float largest; /* set: the largest magnitude of the values, or infinity if one is not finite; with that times 2^shift above
                    * 2^62 what is added is undefined */
} rg_fixed;
enum { RG_FIXED_ADD = 0, RG_FIXED_FIRST = 1, RG_FIXED_COPY = 2 };
/* Does it for n gradients, in their order; for none of them if one is refused. */
int rg_fixed_add(rg_fixed *gradients, int64_t n);
/* The mean of so many summands of each total: value = total * 2^-shift / summands, in float64, and rounded to float32; of
 * several sources, of their sums. type is RG_INT64; or RG_FLOAT32, of which rg_fixed_add would make summands. Each source
 * and values have parts pieces of memory one after the other, of lens elements and with shifts of -1022 to 1022. */
int rg_fixed_mean(int32_t type, const void *const *sources, int32_t n, float *values, const int64_t *lens, const int32_t *shifts, int32_t parts, int64_t summands);

#ifdef __cplusplus
}
#endif
#endif
