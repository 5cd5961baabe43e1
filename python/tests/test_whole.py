"""A state keeps what is whole and alike on all ranks, and refuses the rest in a sentence."""

import copy
import tempfile
import unittest

import torch

import regroup.torch as hvd
from regroup.errors import UnsupportedError

from . import launch
from .jobs import Job, script


class Counted(torch.nn.Linear):
    """Has a state that is no tensor."""

    calls = 0

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]


class Table(torch.nn.Module):
    """Saves in a way of its own what is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.rows = {}

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "rows"] = dict(self.rows)


class Lookahead(torch.optim.Optimizer):
    """An optimizer around another, which saves both."""

    def __init__(self, inner):
        self.inner, self.steps = inner, 0
        self.param_groups, self.defaults, self.state = inner.param_groups, inner.defaults, {}

    def step(self, closure=None):
        self.steps += 1
        self.inner.step()

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad()

    def state_dict(self):
        return {"inner": self.inner.state_dict(), "steps": self.steps}

    def load_state_dict(self, saved):
        self.steps = saved["steps"]
        self.inner.load_state_dict(saved["inner"])


class OwnKeys(torch.optim.SGD):
    """An optimizer with a state that belongs to no parameter."""

    def step(self, closure=None):
        self.state["all"] = {"steps": self.state.get("all", {"steps": 0})["steps"] + 1}
        return super().step(closure)


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 3)


def stepped(model, optimizer):
    """A step."""
    optimizer.zero_grad()
    model(torch.ones(2, 3)).pow(2).sum().backward()
    optimizer.step()


class Whole(unittest.TestCase):
    def setUp(self):
        launch.alone(self)

    def train(self, function, **values):
        """Calls a function in elastic.run with a state of these values."""
        return hvd.elastic.run(function)(hvd.elastic.TorchState(**values))

    def refused(self, text, function=lambda state: state.commit(), **values):
        with self.assertRaisesRegex(UnsupportedError, text):
            self.train(function, **values)

    def test_extra_state_is_kept(self):
        model = torch.nn.Sequential(Counted(3, 3), torch.nn.ReLU())

        def train(state):
            model[0].calls = 3
            state.commit()
            model[0].calls = 9
            state.restore()
            return model[0].calls

        self.assertEqual(3, self.train(train, model=model))

    def test_an_optimizer_around_another_is_kept(self):
        model = linear()
        optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

        def train(state):
            stepped(model, optimizer)
            state.commit()
            want = copy.deepcopy(optimizer.state_dict())
            stepped(model, optimizer)
            state.restore()
            got = optimizer.state_dict()
            self.assertEqual(1, got["steps"])
            momentum = [s["inner"]["state"][0]["momentum_buffer"] for s in (want, got)]
            self.assertTrue(torch.equal(*momentum), momentum)
            return "kept"

        self.assertEqual("kept", self.train(train, model=model, optimizer=optimizer))

    def test_a_state_of_no_parameter_is_kept(self):
        model = linear()
        optimizer = OwnKeys(model.parameters(), lr=0.1)

        def train(state):
            stepped(model, optimizer)
            state.commit()
            stepped(model, optimizer)
            state.restore()
            return optimizer.state["all"]["steps"]

        self.assertEqual(1, self.train(train, model=model, optimizer=optimizer))

    def test_tensors_that_are_more_than_their_bytes(self):
        sparse, quantized, meta = linear(), linear(), linear()
        sparse.register_buffer("table", torch.eye(3).to_sparse())
        quantized.register_buffer("table", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))
        meta.weight = torch.nn.Parameter(torch.empty(3, 3, device="meta"))
        self.refused("model.table is of the layout torch.sparse_coo: make it dense", model=sparse)
        self.refused("model.table is quantized", model=quantized)
        self.refused("model.weight is on the meta device", model=meta)
        self.refused("model.weight is not there yet", model=torch.nn.LazyLinear(3))
        self.refused("model.0 is a Table, which saves 'rows'", model=torch.nn.Sequential(Table()))

    def test_a_tensor_that_becomes_another(self):
        model = linear()

        def train(state):
            model.weight = torch.nn.Parameter(torch.ones(3, 1))
            state.commit()

        self.refused(r"model.weight has become torch.float32 \(3, 1\)", train, model=model)

    def test_a_module_that_is_added(self):
        model = torch.nn.Sequential(linear())

        def train(state):
            model.append(linear())
            state.commit()

        self.refused("model.1.bias was added after elastic.run had begun", train, model=model)

    def test_a_module_that_is_replaced(self):
        """By one with tensors of the same names: those of the new one are kept."""
        model = torch.nn.Sequential(linear())

        def train(state):
            model[0] = linear()
            with torch.no_grad():
                model[0].weight.fill_(3)
            state.commit()
            with torch.no_grad():
                model[0].weight.fill_(4)
            state.restore()
            return model[0].weight.unique().tolist()

        self.assertEqual([3], self.train(train, model=model))

    def test_a_parameter_group_that_is_added(self):
        model, more = linear(), linear()
        optimizer = torch.optim.Adam(model.parameters())

        def train(state):
            optimizer.add_param_group({"params": list(more.parameters())})
            state.commit()

        self.refused(r"optimizer had parameters in groups of \[2\] .* in groups of \[2, 2\]", train, model=model, optimizer=optimizer)

    def test_what_cannot_be_pickled_is_named(self):
        self.refused("state.lines cannot be kept", lines=(i for i in range(3)))

    def test_a_model_that_is_set_later(self):
        """Before elastic.run it becomes a part of the state; in it that is too late."""
        model = linear()

        def train(state):
            with torch.no_grad():
                model.weight.fill_(3)
            state.commit()
            with torch.no_grad():
                model.weight.fill_(4)
            state.restore()
            return model.weight.unique().tolist()

        state = hvd.elastic.TorchState(epoch=0)
        state.model = model
        self.assertEqual([3], hvd.elastic.run(train)(state))

        def late(state):
            state.other = linear()

        self.refused("state.other is new: .* TorchState\\(other=", late, model=linear())


class Jobs(unittest.TestCase):
    """Whole jobs of two workers."""

    def run_job(self, what, *flags, **env):
        with tempfile.TemporaryDirectory() as folder:
            run = ["--recovery", "in-process", "--workers", "2", *flags, "--", *script("whole.py")]
            job = Job(*run, env={"WHAT": what, "FOLDER": folder, **env})
            self.addCleanup(job.close)
            return job.wait()

    def test_tensors_that_rank_0_alone_has(self):
        job = self.run_job("rank 0", "--max-restarts", "0")
        self.assertNotEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertRegex(
            job.output,
            r"UnsupportedError: state.full holds 2 tensors, the first of which is torch.float32\[3, 3\] on rank 0 and no "
            "tensor on rank 1",
        )

    def test_a_model_in_no_state_is_told(self):
        job = self.run_job("nowhere")
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertRegex(job.output, "a Linear is trained and is in no state: 2 of its tensors")
        self.assertRegex(job.output, "the state of the optimizer Adam is trained and is in no state")

    def test_nothing_is_told_of_what_is_kept(self):
        for what in ("kept", "copied"):
            with self.subTest(what):
                job = self.run_job(what)
                self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
                self.assertNotIn("is in no state", job.output)

    def test_an_interrupt_of_the_script(self):
        """It goes on from the values that it has then, on all ranks, and no sample is repeated."""
        job = self.run_job("interrupts")
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        enters = {(e["rank"], e["step"], e["weight"], e["processed"]) for e in job.lines(r"\benters rank=")}
        want = {(r, *at) for r in "01" for at in (("0", "0.0", "0"), ("5", "5.0", "40"))}
        self.assertEqual(want, enters, job.output)
        samples = job.summary["samples"]
        self.assertEqual((0, 0), (samples["missing"], samples["repeated"]), job.output)

    def test_an_interrupt_of_one_rank(self):
        """The others do something else: all return to the last commit."""
        job = self.run_job("interrupts alone", REGROUP_DEADLOCK_SECONDS="1")
        self.assertEqual("succeeded", job.summary.get("outcome"), job.output)
        self.assertRegex(job.output, "rank 0 has raised HostsUpdatedInterrupt, and others have not within 1 s")
        enters = {(e["rank"], e["step"], e["weight"], e["processed"]) for e in job.lines(r"\benters rank=")}
        want = {(r, *at) for r in "01" for at in (("0", "0.0", "0"), ("3", "3.0", "24"))}
        self.assertEqual(want, enters, job.output)


if __name__ == "__main__":
    unittest.main()
