"""A Python interpreter that imports modules, and then waits until it becomes a worker.

It runs as ``python [options] -c``. The process that has started it holds the other end of file
descriptor 3, on which it writes one line of JSON: the environment, and the arguments that follow the
interpreter's options: a script, ``-m`` and a module, or ``-c`` and code. If it ends before, so does
this one.
"""


def wait(modules, device):
    """Imports the modules, those that there are, starts CUDA on a GPU (-1: on none), and returns what this process
    becomes."""
    import importlib
    import json
    import os

    wrong = []
    for name in modules:
        try:
            importlib.import_module(name.rstrip("?"))
        except BaseException as e:  # it would end the worker, if it needs it
            if not name.endswith("?"):
                wrong.append(f"{name}: {type(e).__name__}: {e}")
    if device >= 0 and not wrong:
        try:
            warm_up(device)
        except BaseException as e:
            wrong.append(f"GPU {device}: {type(e).__name__}: {e}")
    with open(3, "r+b", buffering=0) as control:
        control.write(json.dumps({"wrong": wrong}).encode() + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            more = control.read(1 << 16)
            if not more:
                os._exit(0)
            line += more
    return json.loads(line)


def warm_up(device):
    """Starts what a program waits for when it first uses a GPU: CUDA, cuBLAS, and NCCL with a communicator of one.

    The device that is the current one stays so: no context is made on another GPU.
    """
    import torch
    import torch.cuda.nccl

    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no GPU")
    if device >= torch.cuda.device_count():
        raise RuntimeError(f"torch finds {torch.cuda.device_count()}")
    with torch.cuda.device(device):
        torch.cuda.current_blas_handle()
        x = torch.zeros(1, device="cuda")
        if hasattr(torch._C, "_nccl_all_reduce"):
            torch.cuda.nccl.all_reduce([x])
        torch.cuda.synchronize()
        del x
        torch.cuda.empty_cache()


def become(worker):
    """Runs the worker's program as the interpreter would."""
    import os
    import sys

    for name in set(os.environ) - set(worker["env"]):
        del os.environ[name]
    os.environ.update(worker["env"])
    what, *rest = worker["arguments"]
    safe = getattr(sys.flags, "safe_path", False)
    main = sys.modules["__main__"]
    for name in list(vars(main)):
        if name != "__builtins__":
            delattr(main, name)
    vars(main).update(__name__="__main__", __doc__=None, __package__=None, __spec__=None, __loader__=None)
    if what == "-m":
        import runpy

        sys.argv = ["-m", *rest[1:]]
        if not safe:
            sys.path[0] = os.getcwd()
        return lambda: runpy._run_module_as_main(rest[0], True)
    if what == "-c":
        sys.argv = ["-c", *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
        return lambda: exec(code, vars(main))
    sys.argv = [what, *rest]
    if sys.version_info >= (3, 9):
        what = os.path.abspath(what)
    if os.path.isdir(what) or not what.endswith((".py", ".pyc")) and is_zip(what):
        import runpy

        sys.path[0] = what
        return lambda: runpy._run_module_as_main("__main__", False)
    import io
    from importlib.machinery import SourceFileLoader

    if not safe:
        sys.path[0] = os.path.dirname(os.path.realpath(what))
    vars(main).update(__file__=what, __cached__=None, __loader__=SourceFileLoader("__main__", what))

    def script():
        with io.open_code(what) as f:
            code = compile(f.read(), what, "exec")
        exec(code, vars(main))

    return script


def is_zip(path):
    import zipfile

    return zipfile.is_zipfile(path)


def run(program):
    """Runs a program, and reports an exception as the interpreter does, without the frames of this
    module."""
    import sys

    try:
        program()
    except SystemExit:
        raise
    except BaseException as e:
        trace = e.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        if type(e) is SyntaxError and trace is not None and trace.tb_next is None:
            trace = None
        e = e.with_traceback(trace)
        sys.last_type, sys.last_value, sys.last_traceback = type(e), e, trace
        if sys.version_info >= (3, 12):
            sys.last_exc = e
        interrupted = isinstance(e, KeyboardInterrupt)
        sys.excepthook(type(e), e, trace)
        if interrupted:
            import os
            import signal

            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        raise SystemExit(1) from None
