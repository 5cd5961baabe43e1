"""Parts of a model that stay in their memory from one generation to the next."""

import gc
import unittest

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from regroup.torch.elastic.sharded import ShardedParts

PLACE = (0, 1)  # the rank, and the number of ranks


class Registered(dict):
    """What is registered in a generation, by name: where, and whether it is said to be unchanged."""

    def shard(self, tensor, offset, extent, address, size, unchanged):
        self[tensor.name] = address, unchanged

    def live(self, name, away):
        """All parts of this test but buffers are changed by optimizers."""

    def unchanged(self):
        return {name for name, (_, unchanged) in self.items() if unchanged}


class Memory(unittest.TestCase):
    def setUp(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        self.addCleanup(gc.unfreeze)
        self.meta = True

    def build(self, fresh):
        mesh = init_device_mesh("cpu", (1,))
        with torch.device("meta" if self.meta else "cpu"):
            net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4))
        for layer in net:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        if self.meta:
            net.to_empty(device="cpu")
        if fresh:
            with torch.no_grad():
                for tensor in [*net.parameters(), *net.buffers()]:
                    tensor.fill_(1)
        return {"net": net, "optimizer": torch.optim.AdamW(net.parameters())}

    def begin(self):
        """A first generation, which has made a step and committed."""
        self.parts = ShardedParts(self.build)
        self.parts.watch()
        self.addCleanup(self.parts.end)
        first = self.generation(True)
        self.step()
        self.kept = self.parts.capture()
        self.parts.committed()
        return first

    def generation(self, fresh=False, place=PLACE):
        registered = Registered()
        self.parts.make(fresh, place)
        self.parts.register(registered)
        return registered

    def step(self):
        self.parts.made["net"](torch.ones(3, 6)).sum().backward()
        self.parts.made["optimizer"].step()

    def test_they_stay(self):
        """However build makes them; and are used there."""
        for meta in (True, False):
            with self.subTest(meta=meta):
                self.meta = meta
                first = self.begin()
                net, weight = self.parts.made["net"], self.parts.made["net"][0].weight.to_local().clone()
                second = self.generation()
                divided = first.keys() - self.made_anew(first)
                self.assertEqual({n: first[n][0] for n in divided}, {n: second[n][0] for n in divided})
                self.assertEqual(divided, second.unchanged() & divided)
                self.assertIsNot(net, self.parts.made["net"])
                self.parts.apply(self.kept)
                self.assertTrue(torch.equal(weight, self.parts.made["net"][0].weight.to_local()))
                self.step()
                self.parts.capture()  # raises if others are in use
                self.assertFalse(torch.equal(weight, self.parts.made["net"][0].weight.to_local()))
                third = self.generation()
                self.assertEqual({n: first[n][0] for n in divided}, {n: third[n][0] for n in divided})
                self.parts.end()

    def made_anew(self, registered):
        """Numbers, and what all ranks have, is in new memory."""
        return {n for n in registered if n.endswith(".step") or "running" in n or "num_batches" in n}

    def test_what_has_changed(self):
        net = lambda: self.parts.made["net"]  # noqa: E731
        state = lambda: self.parts.made["optimizer"].state[net()[0].weight]  # noqa: E731
        weight, moment = "net.0.weight", "optimizer.net.0.weight.exp_avg"
        changes = {
            "a tensor": (lambda: net()[0].weight.mul_(2), {weight}),
            "its part": (lambda: net()[0].weight.to_local().mul_(2), {weight}),
            "one that an optimizer has": (lambda: state()["exp_avg"].mul_(2), {moment}),
            "its part of one": (lambda: state()["exp_avg"].to_local().mul_(2), {moment}),
            "a forward pass": (lambda: net()[0](torch.ones(3, 6)), set()),
        }
        for what, (change, changed) in changes.items():
            with self.subTest(what):
                self.begin()
                with torch.no_grad():
                    change()
                registered = self.generation()
                places = {weight, moment, "net.0.bias", "net.1.weight"}
                self.assertEqual(places - changed, registered.unchanged() & places)
                self.parts.end()

    def test_a_step_may_change_all(self):
        self.begin()
        self.step()
        self.assertEqual(set(), self.generation().unchanged())

    def test_of_what_was_not_filled_nothing_is_known(self):
        """A generation that failed before it had the state."""
        self.begin()
        self.assertNotEqual(set(), self.generation().unchanged())
        self.assertEqual(set(), self.generation().unchanged())

    def test_another_place(self):
        self.begin()
        self.assertEqual(set(), self.generation(place=(1, 2)).unchanged())

    def test_what_others_use_too_stays_where_build_has_put_it(self):
        views = []
        build = self.build

        def with_a_view(fresh):
            made = build(fresh)
            views.append(made["net"][0].weight.to_local().view(-1))
            return made

        self.build = with_a_view
        first = self.begin()
        second = self.generation()
        self.assertEqual(views[0].data_ptr(), first["net.0.weight"][0])
        self.assertEqual(views[1].data_ptr(), second["net.0.weight"][0])
        self.assertNotEqual(first["net.0.weight"], second["net.0.weight"])
        self.assertEqual(first["net.0.bias"][0], second["net.0.bias"][0])
        self.assertNotIn("net.0.weight", second.unchanged())


if __name__ == "__main__":
    unittest.main()
