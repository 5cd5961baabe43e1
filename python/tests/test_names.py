"""What a script for Horovod finds under regroup.torch, and what is said about wrong settings."""

import inspect
import os
import unittest
from unittest import mock

import regroup
import regroup.torch as hvd
import regroup.torch.mpi_ops as mpi_ops
from regroup import membership, settings
from regroup.errors import InvalidArgumentError

NAMES = """
init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous describe
allreduce allreduce_ allreduce_async allreduce_async_
grouped_allreduce grouped_allreduce_ grouped_allreduce_async grouped_allreduce_async_
allgather allgather_async broadcast broadcast_ broadcast_async broadcast_async_
alltoall alltoall_async reducescatter reducescatter_async barrier join poll synchronize
broadcast_object allgather_object broadcast_parameters broadcast_optimizer_state
DistributedOptimizer Compression Average Sum Min Max Product
grouped_allgather grouped_allgather_async grouped_reducescatter grouped_reducescatter_async sparse_allreduce_async
ProcessSet global_process_set add_process_set remove_process_set SyncBatchNorm start_timeline stop_timeline Adasum
mpi_threads_supported mpi_enabled ddl_built ccl_built mpi_built gloo_enabled gloo_built nccl_built cuda_built rocm_built
elastic
"""

ELASTIC = "run State ObjectState TorchState ElasticSampler"

STATE = (
    "save restore sync commit check_host_updates register_reset_callbacks on_reset on_hosts_updated"
)

SAMPLER = "record_batch set_epoch state_dict load_state_dict reset __iter__ __len__"

#: Parameters that scripts give by name or by position, in Horovod's order.
SIGNATURES = {
    "allreduce": "tensor average name compression op prescale_factor postscale_factor process_set",
    "allreduce_async_": "tensor average name op prescale_factor postscale_factor process_set",
    "allgather": "tensor name process_set",
    "broadcast": "tensor root_rank name process_set",
    "broadcast_parameters": "params root_rank process_set",
    "broadcast_optimizer_state": "optimizer root_rank model process_set",
    "reducescatter": "tensor name compression op process_set prescale_factor postscale_factor",
    "reducescatter_async": "tensor name op process_set prescale_factor postscale_factor",
    "alltoall": "tensor splits name process_set",
    "sparse_allreduce_async": "tensor name op process_set",
    "broadcast_object": "obj root_rank name process_set",
    "DistributedOptimizer": "optimizer named_parameters compression backward_passes_per_step op "
    "gradient_predivide_factor num_groups groups sparse_as_dense process_set",
}


class Names(unittest.TestCase):
    def has(self, thing, names):
        self.assertEqual([], [n for n in names.split() if not hasattr(thing, n)])

    def test_names(self):
        self.has(hvd, NAMES)
        self.has(mpi_ops, NAMES.replace("DistributedOptimizer", "").replace("elastic", "").replace("describe", "")
                 .replace("SyncBatchNorm", "").replace("broadcast_object allgather_object", "")
                 .replace("broadcast_parameters broadcast_optimizer_state", ""))
        self.has(hvd.elastic, ELASTIC)
        self.has(hvd.elastic.TorchState, STATE)
        self.has(hvd.elastic.ElasticSampler, SAMPLER)
        self.has(hvd.Compression, "none fp16 bf16")
        self.has(regroup, "report generation on record")

    def test_signatures(self):
        for name, want in SIGNATURES.items():
            got = list(inspect.signature(getattr(hvd, name)).parameters)
            with self.subTest(name):
                self.assertEqual(want.split(), got)

    def test_before_init(self):
        for call in (hvd.rank, hvd.size, hvd.local_rank, hvd.barrier):
            with self.assertRaises(ValueError):
                call()

    def test_errors(self):
        self.assertIs(hvd.HorovodInternalError, regroup.WorkerLostError)
        self.assertTrue(issubclass(hvd.HorovodInternalError, RuntimeError))
        self.assertFalse(hvd.HostsUpdatedInterrupt().skip_sync)


class Settings(unittest.TestCase):
    def refused(self, says, call, **environment):
        with mock.patch.dict(os.environ, environment):
            with self.assertRaisesRegex(InvalidArgumentError, says):
                call()

    def test_wrong_ones(self):
        self.refused(
            "REGROUP_BUCKET_BYTES='25M'.*number of bytes, 0 or more",
            settings.bucket_bytes,
            REGROUP_BUCKET_BYTES="25M",
        )
        self.refused("FUSION.*'-1'", settings.bucket_bytes, HOROVOD_FUSION_THRESHOLD="-1")
        self.refused("INLINE_BYTES='x'", settings.inline_bytes, REGROUP_INLINE_BYTES="x")
        for ports in ("x", "5-", "9-3", "0-5", "1-70000"):
            self.refused(
                "29000-29100",
                lambda: settings.ports("REGROUP_DATA_PORTS"),
                REGROUP_DATA_PORTS=ports,
            )
        self.refused("RANK=2 must be below WORLD_SIZE=2", membership.expected, RANK="2", WORLD_SIZE="2")
        self.refused("RANK='a'", membership.expected, RANK="a", WORLD_SIZE="2")
        self.refused(
            "LOCAL_WORLD_SIZE='0'", membership.expected, RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="0"
        )

    def test_good_ones(self):
        with mock.patch.dict(os.environ, {"REGROUP_DATA_PORTS": "7-9"}):
            self.assertEqual((7, 9), settings.ports("REGROUP_DATA_PORTS"))
        with mock.patch.dict(os.environ, {"REGROUP_DATA_PORTS": "7"}):
            self.assertEqual((7, 7), settings.ports("REGROUP_DATA_PORTS"))
        with mock.patch.dict(os.environ, {"HOROVOD_FUSION_THRESHOLD": "64"}):
            self.assertEqual(64, settings.bucket_bytes())
            with mock.patch.dict(os.environ, {"REGROUP_BUCKET_BYTES": "32"}):
                self.assertEqual(32, settings.bucket_bytes())


if __name__ == "__main__":
    unittest.main()
