/*
 * The functions of regroup.h. Each looks whether this process is a forked child, in which no Go code can run (of the
 * runtime's threads only the calling one is left), and calls its counterpart in Go.
 */
#include "regroup.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "process.h"

#define GUARDED(call) return rgx_forked ? rgx_fail_forked() : (int)(call)

uint32_t rg_abi(void) { return RG_ABI_MAJOR << 16 | RG_ABI_MINOR; }

const char *rg_last_error(void) { return rgx_failure()->text; }

int32_t rg_lost_rank(void) { return rgx_failure()->lost; }

void rg_release(void *memory) { free(memory); }

const char *rg_version(void) { return rgx_forked ? "regroup (forked)" : rgo_version(); }

int rg_endpoint_new(const char *options, rg_endpoint *endpoint) {
    GUARDED(rgo_endpoint_new((char *)options, endpoint));
}

int rg_endpoint_address(rg_endpoint endpoint, char *buffer, size_t len) {
    GUARDED(rgo_endpoint_address(endpoint, buffer, len));
}

int rg_endpoint_close(rg_endpoint endpoint) { GUARDED(rgo_endpoint_close(endpoint)); }

int rg_alloc(rg_endpoint endpoint, int64_t bytes, void **memory) { GUARDED(rgo_alloc(endpoint, bytes, memory)); }

int rg_free(rg_endpoint endpoint, void *memory) { GUARDED(rgo_free(endpoint, memory)); }

int rg_comm_new(rg_endpoint endpoint, const char *options, rg_comm *comm) {
    GUARDED(rgo_comm_new(endpoint, (char *)options, comm));
}

int rg_comm_close(rg_comm comm) { GUARDED(rgo_comm_close(comm)); }

int rg_comm_origin(rg_comm comm, int32_t origin, rg_comm *other) { GUARDED(rgo_comm_origin(comm, origin, other)); }

int rg_comm_abort(rg_comm comm, int32_t rank, const char *why) { GUARDED(rgo_comm_abort(comm, rank, (char *)why)); }

int rg_comm_failed(rg_comm comm) { GUARDED(rgo_comm_failed(comm)); }

int rg_comm_wait_failed(rg_comm comm, int64_t within_ms) { GUARDED(rgo_comm_wait_failed(comm, within_ms)); }

int rg_comm_describe(rg_comm comm, char *buffer, size_t len) { GUARDED(rgo_comm_describe(comm, buffer, len)); }

int rg_start(uint64_t handle, const rg_op *op, rg_request *request) {
    GUARDED(rgo_start(handle, (rg_op *)op, request));
}

int rg_segment(rg_comm comm, int64_t count, int32_t rank, int64_t *begin, int64_t *end) {
    GUARDED(rgo_segment(comm, count, rank, begin, end));
}

int rg_allgather_bytes(rg_comm comm, const void *send, int64_t bytes, void **all, int64_t *sizes) {
    GUARDED(rgo_allgather_bytes(comm, (void *)send, bytes, all, sizes));
}

int rg_wait(rg_request request, int64_t within_ms) { GUARDED(rgo_wait(request, within_ms, rgx_on_main_thread())); }

int rg_watch(rg_request request) { GUARDED(rgo_watch(request)); }

int rg_wait_any(rg_comm comm, int64_t within_ms, rg_request *request, int32_t *status) {
    GUARDED(rgo_wait_any(comm, within_ms, request, status));
}

int rg_wait_result(rg_request request, int64_t within_ms, void **data, int64_t *rows) {
    GUARDED(rgo_wait_result(request, within_ms, rgx_on_main_thread(), data, rows));
}

int rg_named_options(rg_comm comm, const char *options) { GUARDED(rgo_named_options(comm, (char *)options)); }

int rg_named_refuse(rg_comm comm, const char *name, const char *why) {
    GUARDED(rgo_named_refuse(comm, (char *)name, (char *)why));
}

int rg_named_deadlocks(rg_comm comm, int64_t *count) { GUARDED(rgo_named_deadlocks(comm, count)); }

int rg_subset(rg_comm comm, const char *name, const int32_t *ranks, int32_t len, rg_comm *subset) {
    GUARDED(rgo_subset(comm, (char *)name, (int32_t *)ranks, len, subset));
}

int rg_timeline_start(rg_comm comm, const char *path, int32_t mark_cycles) {
    GUARDED(rgo_timeline_start(comm, (char *)path, mark_cycles));
}

int rg_timeline_stop(rg_comm comm) { GUARDED(rgo_timeline_stop(comm)); }

int rg_elastic_new(const char *options, rg_elastic *elastic) { GUARDED(rgo_elastic_new((char *)options, elastic)); }

int rg_elastic_live(rg_elastic elastic, const char *name) { GUARDED(rgo_elastic_live(elastic, (char *)name)); }
int rg_elastic_away(rg_elastic elastic, const char *name) { GUARDED(rgo_elastic_away(elastic, (char *)name)); }
int rg_elastic_brought(rg_elastic elastic, int32_t ok) { GUARDED(rgo_elastic_brought(elastic, ok)); }
int rg_elastic_sharded(rg_elastic elastic, int32_t copies, int32_t parity) {
    GUARDED(rgo_elastic_sharded(elastic, copies, parity));
}

int rg_elastic_shard(rg_elastic elastic, const rg_shard *shard) { GUARDED(rgo_elastic_shard(elastic, (rg_shard *)shard)); }

int rg_elastic_tensor(rg_elastic elastic, const char *name, void *memory, int64_t bytes) {
    GUARDED(rgo_elastic_tensor(elastic, (char *)name, memory, bytes));
}

int rg_elastic_object(rg_elastic elastic, const char *name, const void *bytes, int64_t len) {
    GUARDED(rgo_elastic_object(elastic, (char *)name, (void *)bytes, len));
}

int rg_elastic_object_get(rg_elastic elastic, const char *name, void **bytes, int64_t *len) {
    GUARDED(rgo_elastic_object_get(elastic, (char *)name, bytes, len));
}

int rg_elastic_data(rg_elastic elastic, uint64_t samples, uint64_t seed, int32_t recording) {
    GUARDED(rgo_elastic_data(elastic, samples, seed, recording));
}

int rg_elastic_record(rg_elastic elastic, uint64_t epoch, const int64_t *indices, int64_t len) {
    GUARDED(rgo_elastic_record(elastic, epoch, (int64_t *)indices, len));
}
int rg_elastic_record_for(rg_elastic elastic, uint64_t epoch, const int64_t *indices, int64_t len) {
    GUARDED(rgo_elastic_record_for(elastic, epoch, (int64_t *)indices, len));
}

int rg_elastic_prologue_add(rg_elastic elastic, const void *bytes, int64_t len) {
    GUARDED(rgo_elastic_prologue_add(elastic, (void *)bytes, len));
}

int rg_elastic_prologue_get(rg_elastic elastic, int64_t index, void **bytes, int64_t *len) {
    GUARDED(rgo_elastic_prologue_get(elastic, index, bytes, len));
}

int rg_elastic_start(rg_elastic elastic) { GUARDED(rgo_elastic_start(elastic)); }

int rg_elastic_next(rg_elastic elastic, int64_t within_ms, rg_session *session) {
    GUARDED(rgo_elastic_next(elastic, within_ms, session));
}

int rg_elastic_leave(rg_elastic elastic, int32_t how, const char *why) {
    GUARDED(rgo_elastic_leave(elastic, how, (char *)why));
}

int rg_elastic_consume(rg_elastic elastic, int64_t total, const int64_t *indices, int64_t len) {
    GUARDED(rgo_elastic_consume(elastic, total, (int64_t *)indices, len));
}

int rg_elastic_stop(rg_elastic elastic) { GUARDED(rgo_elastic_stop(elastic)); }

int rg_elastic_check_updates(rg_elastic elastic) { GUARDED(rgo_elastic_check_updates(elastic)); }

int rg_elastic_commit(rg_elastic elastic) { GUARDED(rgo_elastic_commit(elastic)); }
int rg_elastic_commit_live(rg_elastic elastic) { GUARDED(rgo_elastic_commit_live(elastic)); }
int rg_elastic_agree(rg_elastic elastic, int32_t live, int32_t *copies) { GUARDED(rgo_elastic_agree(elastic, live, copies)); }
int rg_elastic_alike(rg_elastic elastic, uint64_t hash) { GUARDED(rgo_elastic_alike(elastic, hash)); }
int rg_elastic_ballot(rg_elastic elastic, int64_t values[RG_BALLOT]) { GUARDED(rgo_elastic_ballot(elastic, values)); }
int rg_elastic_agreed(rg_elastic elastic, const int64_t greatest[RG_BALLOT]) { GUARDED(rgo_elastic_agreed(elastic, (int64_t *)greatest)); }
int rg_elastic_changed(rg_elastic elastic) { GUARDED(rgo_elastic_changed(elastic)); }
int rg_elastic_copy_next(rg_elastic elastic) { GUARDED(rgo_elastic_copy_next(elastic)); }
int rg_elastic_hold(rg_elastic elastic, int32_t *held) { GUARDED(rgo_elastic_hold(elastic, held)); }
int rg_elastic_verify(rg_elastic elastic) { GUARDED(rgo_elastic_verify(elastic)); }
int rg_elastic_distrust(rg_elastic elastic, int64_t *step) { GUARDED(rgo_elastic_distrust(elastic, step)); }
int rg_elastic_withdraw(rg_elastic elastic) { GUARDED(rgo_elastic_withdraw(elastic)); }
int rg_elastic_unchanged(rg_elastic elastic, int32_t *same) { GUARDED(rgo_elastic_unchanged(elastic, same)); }
int rg_elastic_commit_alone(rg_elastic elastic) { GUARDED(rgo_elastic_commit_alone(elastic)); }

int rg_elastic_restore(rg_elastic elastic) { GUARDED(rgo_elastic_restore(elastic)); }

int rg_elastic_report(rg_elastic elastic, const char *metrics) { GUARDED(rgo_elastic_report(elastic, (char *)metrics)); }

int rg_elastic_ledger(rg_elastic elastic, char *buffer, size_t len) {
    GUARDED(rgo_elastic_ledger(elastic, buffer, len));
}

int rg_elastic_close(rg_elastic elastic) { GUARDED(rgo_elastic_close(elastic)); }

int rg_gpu_open(rg_comm comm, const char *options, rg_gpu before, rg_gpu *gpu) {
    GUARDED(rgo_gpu_open(comm, (char *)options, before, gpu));
}

int rg_gpu_describe(rg_gpu gpu, char *buffer, size_t len) { GUARDED(rgo_gpu_describe(gpu, buffer, len)); }

int rg_gpu_close(rg_gpu gpu) { GUARDED(rgo_gpu_close(gpu)); }

int rg_permutation(uint64_t samples, uint64_t seed, uint64_t epoch, uint64_t position, int64_t *indices, int64_t len) {
    GUARDED(rgo_permutation(samples, seed, epoch, position, indices, len));
}

int rg_fixed_add(rg_fixed *gradients, int64_t n) { GUARDED(rgo_fixed_add(gradients, n)); }

int rg_fixed_mean(int32_t type, const void *const *sources, int32_t n, float *values, const int64_t *lens, const int32_t *shifts, int32_t parts, int64_t summands) {
    GUARDED(rgo_fixed_mean(type, (void **)sources, n, values, (int64_t *)lens, (int32_t *)shifts, parts, summands));
}
