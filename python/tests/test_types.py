"""What type checkers of users see: py.typed promises that public names are exported and annotated."""

import inspect
import os
import types
import unittest

import regroup
import regroup.torch
import regroup.torch.elastic

MODULES = (regroup, regroup.torch, regroup.torch.elastic)


class Types(unittest.TestCase):
    def test_marker(self):
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(regroup.__file__), "py.typed")))

    def test_exported(self):
        """A name that is only imported is private to a strict type checker."""
        for module in MODULES:
            public = {
                name
                for name, value in vars(module).items()
                if not name.startswith("_")
                and not isinstance(value, types.ModuleType)
                and getattr(value, "__module__", "regroup").startswith("regroup")
            }
            with self.subTest(module.__name__):
                self.assertEqual(set(), public - set(module.__all__))
                self.assertEqual([], [n for n in module.__all__ if not hasattr(module, n)])

    def test_annotated(self):
        """A call of a function without types is an error in a strict type checker."""
        for module in MODULES:
            for name in module.__all__:
                for function in functions(getattr(module, name)):
                    with self.subTest(f"{module.__name__}.{name}", function=function.__qualname__):
                        self.assertEqual([], untyped(function))


def functions(value):
    """A function; of a class, its public methods and its constructor."""
    if inspect.isfunction(value):
        return [value]
    if not inspect.isclass(value) or not value.__module__.startswith("regroup"):
        return []
    return [
        method
        for name, method in vars(value).items()
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_"))
    ]


def untyped(function):
    """The names of a function's parameters that have no annotation, and whether its result has
    none."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    found = [p.name for p in parameters if p.annotation is p.empty and p.name not in ("self", "cls")]
    typed = len(found) < len([p for p in parameters if p.name != "self"])
    if signature.return_annotation is signature.empty and not (function.__name__ == "__init__" and typed):
        found.append("return")
    return found


if __name__ == "__main__":
    unittest.main()
