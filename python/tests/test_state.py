"""TorchState and ObjectState in a world of one process: what is committed comes back, bit by bit.
"""

import copy
import unittest

import torch

import regroup.torch as hvd
from regroup.torch.elastic import optimizer_handler
from regroup.torch.elastic import state as state_module
from regroup.torch.world import world

from . import launch

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, foreach=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "RAdam": lambda p: torch.optim.RAdam(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.5),
    "Rprop": lambda p: torch.optim.Rprop(p),
}


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.0), torch.nn.Linear(8, 1)
    )


def step(model, optimizer, seed):
    g = torch.Generator().manual_seed(seed)
    optimizer.zero_grad()
    model(torch.randn(6, 4, generator=g)).pow(2).mean().backward()
    optimizer.step()


def everything(model, optimizer):
    """A copy of all that a training is."""
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()))


class StateTest(unittest.TestCase):
    def setUp(self):
        launch.alone(self)

    def same(self, got, want, what):
        """Compares nested states."""
        if torch.is_tensor(want):
            self.assertTrue(torch.is_tensor(got) and got.dtype == want.dtype, what)
            self.assertTrue(torch.equal(got, want), f"{what}: {got}, want {want}")
        elif isinstance(want, dict):
            self.assertEqual(set(want), set(got), what)
            for key in want:
                self.same(got[key], want[key], f"{what}.{key}")
        elif isinstance(want, (list, tuple)):
            self.assertEqual(len(want), len(got), what)
            for i, (g, w) in enumerate(zip(got, want)):
                self.same(g, w, f"{what}[{i}]")
        else:
            self.assertEqual(want, got, what)

    def test_optimizers(self):
        for name, make in OPTIMIZERS.items():
            with self.subTest(name):
                model = network()
                optimizer = make(model.parameters())
                before = everything(model, optimizer)
                state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0)
                self.same(everything(model, optimizer), before, "to make a state changes nothing")

                @hvd.elastic.run
                def train(state):
                    self.same(everything(model, optimizer), before, "to begin changes nothing")
                    state.commit()
                    step(model, optimizer, 0)
                    state.restore()  # to before the first step: there is no state yet
                    self.same(everything(model, optimizer), before, "before the first step")
                    for k in range(3):
                        step(model, optimizer, k)
                    state.epoch = 3
                    state.commit()
                    want = everything(model, optimizer)
                    for k in range(2):  # what follows is the same each time
                        step(model, optimizer, 7)
                        after = everything(model, optimizer) if k == 0 else after
                        self.same(everything(model, optimizer), after, "goes on alike")
                        state.epoch = 9
                        state.restore()
                        self.same(everything(model, optimizer), want, "restored")
                        self.assertEqual(3, state.epoch)
                    return "done"

                self.assertEqual("done", train(state))

    def test_where_tensors_lie(self):
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        state = hvd.elastic.TorchState(model, optimizer)
        pointers = [p.data_ptr() for p in model.parameters()]

        @hvd.elastic.run
        def train(state):
            step(model, optimizer, 0)
            state.commit()
            registered = {
                slot.memory.data_ptr()
                for slots in state._engine_handlers["optimizer"]._registered
                for slot in slots.values()
            }
            for entries in optimizer.state.values():
                for value in entries.values():
                    self.assertIn(value.data_ptr(), registered, "commits copy it twice")
            step(model, optimizer, 1)
            state.restore()
            self.assertEqual(pointers, [p.data_ptr() for p in model.parameters()])

        train(state)

    def test_tensors_that_move(self):
        model = torch.nn.Linear(3, 3)
        model.weight.data = model.weight.data.t()  # not in one piece
        model.register_buffer("scratch", torch.zeros(2), persistent=False)
        model.register_buffer("count", torch.zeros((), dtype=torch.int64))
        state = hvd.elastic.TorchState(model=model)

        @hvd.elastic.run
        def train(state):
            state.commit()
            want = copy.deepcopy(model.state_dict())
            model.count = model.count + 1  # another tensor, as old BatchNorms do it
            model.weight.data = torch.ones(3, 3)
            state.restore()
            self.same(model.state_dict(), want, "restored into other memory")
            model.weight.data.fill_(5)
            model.count = model.count + 2
            state.commit()
            model.weight.data.zero_()
            model.count.zero_()
            state.restore()
            self.assertEqual(5, model.weight[0, 0].item())
            self.assertEqual(2, model.count.item())

        train(state)

    def test_shared_parameters(self):
        model = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)])
        model[1].weight = model[0].weight
        state = hvd.elastic.TorchState(model=model)

        @hvd.elastic.run
        def train(state):
            state.commit()
            model[0].weight.data.zero_()
            state.restore()
            self.assertIs(model[0].weight, model[1].weight)
            self.assertNotEqual(0, model[1].weight.abs().sum().item())

        train(state)

    def test_plain_attributes(self):
        state = hvd.elastic.ObjectState(epoch=0, history=[], best={"loss": 1.0})

        @hvd.elastic.run
        def train(state):
            state.epoch = 4
            state.history.append("a")
            state.commit()
            state.history.append("b")  # in place: it is undone all the same
            state.best["loss"] = 0.0
            state.epoch = 5
            state.restore()
            self.assertEqual((4, ["a"], {"loss": 1.0}), (state.epoch, state.history, state.best))

        train(state)

    def test_anything_with_a_state_dict(self):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        state = hvd.elastic.TorchState(model, optimizer, scheduler=scheduler)

        @hvd.elastic.run
        def train(state):
            step(model, optimizer, 0)
            scheduler.step()
            state.commit()
            scheduler.step()
            state.restore()
            self.assertEqual(1, scheduler.last_epoch)
            self.assertEqual(0.5, optimizer.param_groups[0]["lr"])

        train(state)

    def test_the_account_of_samples(self):
        data = torch.utils.data.TensorDataset(torch.arange(25))
        sampler = hvd.elastic.ElasticSampler(data)
        state = hvd.elastic.TorchState(sampler=sampler, epoch=0)

        @hvd.elastic.run
        def train(state):
            loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
            while state.epoch < 3:
                for i, _ in enumerate(loader):
                    sampler.record_batch(i, 4)
                    if i == 2:
                        state.commit()
                    if i == 4 and state.epoch == 1:
                        state.restore()
                        break  # goes on from the commit, in the next turn of the while
                else:
                    state.epoch += 1
                    sampler.set_epoch(state.epoch)
            state.commit()
            ledger = world.training.ledger()
            self.assertEqual("", ledger["error"])
            self.assertEqual([25, 25, 25], [e["count"] for e in ledger["epochs"]])
            list(iter(sampler))
            sampler.record_batch(0, 4)
            sampler.set_epoch(
                7
            )  # an epoch that is left half-way is not proved, and does not harm the next
            while sampler.epoch == 7 and sampler.processed_num < 25:
                sampler.record_batch(0, 4)
            state.commit()
            self.assertEqual("", world.training.ledger()["error"])
            self.assertEqual(
                [25, 25, 25, 4, 25], [e["count"] for e in world.training.ledger()["epochs"]]
            )

        train(state)

    def test_callbacks_and_interrupts(self):
        calls = []
        state = hvd.elastic.ObjectState(n=0)
        state.register_reset_callbacks([lambda: calls.append("a"), lambda: calls.append("b")])

        @hvd.elastic.run
        def train(state, argument, key=None):
            self.assertEqual(("x", "y"), (argument, key))
            if state.n == 0:
                state.n = 1
                state.commit()
                raise hvd.HorovodInternalError("as if a worker were lost")
            self.fail("called again")

        with self.assertRaisesRegex(
            hvd.HorovodInternalError, "as if"
        ):  # alone there is nobody to regroup with
            train(state, "x", key="y")
        state.on_reset()
        self.assertEqual(["a", "b"], calls)

    def test_an_error_of_the_script(self):
        state = hvd.elastic.ObjectState(n=0)

        @hvd.elastic.run
        def train(state):
            raise KeyError("mistake")

        with self.assertRaises(KeyError):
            train(state)
        self.assertIsNone(world.training)

        @hvd.elastic.run
        def train_again(state):
            state.commit()
            return state.n

        self.assertEqual(0, train_again(state))

    def test_mistakes(self):
        model = network()
        state = hvd.elastic.TorchState(model=model, epoch=0)

        @hvd.elastic.run
        def train(state):
            state.model = model
            with self.assertRaisesRegex(hvd.RegroupError, "cannot be replaced"):
                state.model = network()

        train(state)
        with self.assertRaisesRegex(hvd.RegroupError, "not a State"):
            train(model)
        hvd.shutdown()
        with self.assertRaisesRegex(hvd.RegroupError, r"call init\(\)"):
            train(state)
        with self.assertRaisesRegex(hvd.RegroupError, r"call init\(\)"):
            hvd.rank()

    def test_a_state_of_ones_own(self):
        class Own(hvd.elastic.State):
            def __init__(self):
                super().__init__()
                self.value, self.saved, self.synced = 1, None, 0

            def save(self):
                self.saved = self.value

            def restore(self):
                self.value = self.saved

            def sync(self):
                self.synced += 1

        state = Own()

        @hvd.elastic.run
        def train(state):
            state.value = 2
            state.commit()
            state.value = 3
            state.restore()
            return state.value

        self.assertEqual(2, train(state))
        self.assertEqual(1, state.synced)

    def test_outside_of_run(self):
        """As in Horovod: restore goes back to the last save, or to what the state was made of."""
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        step(model, optimizer, 0)
        sampler = hvd.elastic.ElasticSampler(range(20))
        state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=1, history=["a"])
        for when in ("before a save", "after one"):
            want, epoch, history = everything(model, optimizer), state.epoch, list(state.history)
            processed = sampler.processed_num
            step(model, optimizer, 1)
            state.epoch += 1
            state.history.append("b")
            sampler.record_batch(0, 4)
            state.restore()
            self.same(everything(model, optimizer), want, when)
            self.assertEqual((epoch, history, processed), (state.epoch, state.history, sampler.processed_num))
            step(model, optimizer, 2)
            state.epoch += 7
            sampler.record_batch(0, 4)
            state.save()
        state.model = other = network()
        with torch.no_grad():
            other[0].weight.zero_()
        state.restore()
        self.assertNotEqual(0, other[0].weight.abs().sum().item(), "a value in its place is kept from then on")

        @hvd.elastic.run
        def train(state):
            state.epoch += 1
            state.commit()

        train(state)
        with self.assertRaisesRegex(hvd.RegroupError, "nothing to return to"):
            state.restore()
        state.save()
        state.epoch = 99
        state.restore()
        self.assertNotEqual(99, state.epoch)

    def test_handlers_of_ones_own(self):
        calls = []

        class Table:
            rows = 0

        class Handler(hvd.elastic.StateHandler):
            def save(self):
                calls.append("save")
                self.saved = self.value.rows

            def restore(self):
                calls.append("restore")
                self.value.rows = self.saved

            def sync(self):
                calls.append("sync")

        before = hvd.elastic.get_handler_registry()
        self.addCleanup(hvd.elastic.set_handler_registry, before)
        hvd.elastic.set_handler_registry([(Table, Handler), *before])
        state = hvd.elastic.TorchState(table=Table(), model=network())
        state.save()

        @hvd.elastic.run
        def train(state):
            state.table.rows = 1
            state.commit()
            state.table.rows = 2
            state.restore()
            return state.table.rows

        self.assertEqual(1, train(state))
        self.assertEqual(["save", "save", "sync", "save", "restore"], calls)
        state.table = Table()
        self.assertEqual("save", calls[-1])

        class Careful(state_module.ModelStateHandler):
            def restore(self):
                calls.append("careful")
                super().restore()

        hvd.elastic.set_handler_registry([(torch.nn.Module, Careful)])
        state = hvd.elastic.TorchState(model=network())
        state.restore()
        self.assertEqual("careful", calls[-1])

    def test_an_optimizer_that_wants_a_closure(self):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.LBFGS(model.parameters())
        self.assertEqual([{}, {}], optimizer_handler.outlines(optimizer, list(model.parameters())))
        state = hvd.elastic.TorchState(model, optimizer)

        @hvd.elastic.run
        def train(state):
            def closure():
                optimizer.zero_grad()
                loss = (model(torch.ones(3, 2)) - 1).pow(2).mean()
                loss.backward()
                return loss

            optimizer.step(closure)
            state.commit()
            want = everything(model, optimizer)
            optimizer.step(closure)
            state.restore()
            self.same(everything(model, optimizer), want, "restored")

        train(state)


if __name__ == "__main__":
    unittest.main()
