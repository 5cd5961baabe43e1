"""Calls every operation that this PyTorch's TCPStore has, as a client of HOST PORT.

    python3 operations.py HOST PORT

It prints the operations that it called, and fails at the first result that is not as documented.
"""

import sys
import threading
from datetime import timedelta

import torch.distributed as dist

HOST, PORT = sys.argv[1], int(sys.argv[2])
SHORT = timedelta(milliseconds=200)
called = []


def client(**options):
    return dist.TCPStore(HOST, PORT, is_master=False, timeout=timedelta(seconds=20), **options)


def equal(got, want, what):
    called.append(what)
    if got != want:
        raise AssertionError(f"{what}: {got!r}, not {want!r}")


def times_out(call, what):
    called.append(what)
    try:
        call()
    except RuntimeError as e:
        if "timeout" not in str(e).lower():
            raise
        return
    raise AssertionError(f"{what}: no timeout")


a, b = client(world_size=2), client(world_size=2)
equal(a.num_keys(), 1, "num_keys")  # init/
a.set("key", "value")
equal(b.get("key"), b"value", "get")
a.set("empty", "")
equal(b.get("empty"), b"", "get of an empty value")
a.set("long", "x" * 3_000_000)
equal(len(b.get("long")), 3_000_000, "get of a long value")
equal([a.add("n", 3), b.add("n", -5), b.get("n")], [3, -2, b"-2"], "add")
equal(a.compare_set("absent", "expected", "v"), b"expected", "compare_set of an absent key")
equal(a.compare_set("cs", "", "1"), b"1", "compare_set creates")
equal(b.compare_set("cs", "1", "2"), b"2", "compare_set changes")
equal(b.compare_set("cs", "1", "3"), b"2", "compare_set refuses")
equal([a.delete_key("cs"), a.delete_key("cs")], [True, False], "delete_key")
equal(a.num_keys(), 5, "num_keys")

# A wait that has timed out leaves the connection as it was, even if its key comes later. PyTorch
# 1.13 says nothing of the end of its wait, so another request has to come before the key.
times_out(lambda: a.wait(["late"], SHORT), "wait")
equal(a.num_keys(), 5, "num_keys")
b.set("late", "1")
equal([a.add("n", 0), a.get("late"), a.get("key")], [-2, b"1", b"value"], "replies after a timeout")
a.set_timeout(SHORT)
times_out(lambda: a.get("later"), "get of an absent key")
a.set_timeout(timedelta(seconds=20))
equal(a.num_keys(), 6, "num_keys")
b.set("later", "2")
equal([a.get("later"), a.get("key")], [b"2", b"value"], "replies after a timeout")
a.wait(["late", "later", "late"])

inside = dist.PrefixStore("out", dist.PrefixStore("in", a))
inside.set("k", "prefixed")
equal(b.get("in/out/k"), b"prefixed", "keys of a PrefixStore")

if hasattr(a, "check"):
    equal([a.check(["key"]), a.check(["key", "no"])], [True, False], "check")
if hasattr(a, "append"):
    a.append("log", "po")
    a.get("log")  # append has no reply, and b has another connection
    b.append("log", "tato")
    b.get("log")
    equal(a.get("log"), b"potato", "append")
if hasattr(a, "multi_set"):
    a.multi_set(["m1", "m2"], ["1", "2"])
    a.get("m2")
    equal(b.multi_get(["m2", "m1", "key"]), [b"2", b"1", b"value"], "multi_set and multi_get")
if hasattr(a, "clone"):
    equal(a.clone().get("key"), b"value", "clone")
if hasattr(a, "queue_push"):
    a.queue_push("queue", "1")
    a.queue_push("queue", "2")
    a.queue_len("queue")
    equal([b.queue_len("queue"), b.queue_pop("queue"), b.queue_pop("queue")], [2, b"1", b"2"], "queue")
    try:
        raise AssertionError(f"queue_pop of nothing: {b.queue_pop('queue', block=False)!r}")
    except dist.QueueEmptyError:
        called.append("queue_pop of nothing")
    # One after the other: a client waits in one request and pops in the next, and another one may pop in between.
    for item in (b"x", b"y"):
        popped = []
        pops = threading.Thread(target=lambda: popped.append(a.queue_pop("work")))
        pops.start()
        b.queue_push("work", item.decode())
        pops.join()
        equal(popped, [item], "queue_pop waits")
if hasattr(a, "list_keys"):
    equal(len(a.list_keys()), a.num_keys() - 1, "list_keys")  # without init/
    equal("key" in a.list_keys(), True, "list_keys")
if hasattr(a, "barrier"):
    times_out(lambda: a.barrier("alone", 2, SHORT), "barrier")
    b.barrier("alone", 2, SHORT)  # the call that timed out has been counted
    members = [threading.Thread(target=lambda s=s: s.barrier("meet", 3, timedelta(seconds=20))) for s in (a, b)]
    for t in members:
        t.start()
    client().barrier("meet", 3, timedelta(seconds=20))
    for t in members:
        t.join()
    called.append("barrier")
print(", ".join(dict.fromkeys(called)))
