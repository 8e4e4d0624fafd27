"""
Imports JAX and jaxmon once, and runs each requested program in a fork.

See `tests.preloaded`.

Arguments: the descriptors to read requests from and to write responses to. A request is
a line of JSON; its responses are the process id and, once it exited, the exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import sys
import time
import types
from importlib import import_module
from pathlib import Path
from typing import Any


class Exit:
    """
    Exits without taking apart what was imported, which costs as much as importing it.
    """

    code = 1

    def now(self) -> None:
        """Exit with the code."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.code)


# Registered before all others, it is called after them.
at_exit = Exit()
atexit.register(at_exit.now)

import jax  # noqa: E402 - with the others, what each program would import otherwise
import jax.numpy  # noqa: E402


# Loaded by an agent as it starts and at the first compile, with all that they import.
for _name in (
    "runtime",
    "history.part",
    "compiles.programs",
    "recompiles.signature_builder",
    "sampling.part",
    "traces.part",
    "tracing.part",
    "transfers.part",
    "walltime.part",
    "warm.recorder",
):
    import_module(f"jaxmon.agent.{_name}")

# Or each program's collector goes through all of it, and has the kernel copy it.
gc.collect()
gc.freeze()


def serve(reading: int, writing: int) -> dict[str, Any]:
    """Fork for each request; return it in the child, and exit in the parent."""
    requests = os.fdopen(reading)
    while line := requests.readline():
        pid = os.fork()
        if pid == 0:
            requests.close()
            os.close(writing)
            request: dict[str, Any] = json.loads(line)
            return request
        _respond(writing, pid)
        _respond(writing, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def become(request: dict[str, Any]) -> None:
    """Take on environment, directory, descriptors and optimisation of the program."""
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    os.chdir(request["cwd"])
    for number, path in enumerate(request["files"]):
        opened = os.open(path, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    jax.config.update("jax_disable_most_optimizations", not request["optimised"])


def run(arguments: list[str]) -> None:
    """Run what *arguments* of `python` ask for: ``-c``, ``-m`` or a script."""
    kind, *rest = arguments
    if kind == "-m":
        sys.argv = rest
        sys.path[0] = str(Path.cwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if kind == "-c":
        source, name = rest[0], "<string>"
        sys.argv = ["-c", *rest[1:]]
        sys.path[0] = ""
    else:
        source, name = Path(kind).read_text(encoding="utf-8"), kind
        main.__file__ = kind
        sys.argv = arguments
        sys.path[0] = str(Path(kind).resolve().parent)
    exec(compile(source, name, "exec"), main.__dict__)  # noqa: S102 - as Python does


def _respond(writing: int, number: int) -> None:
    os.write(writing, f"{number}\n".encode())


if __name__ == "__main__":
    asked = serve(*map(int, sys.argv[1:]))
    become(asked)
    try:
        run(asked["arguments"])
    except SystemExit as error:
        at_exit.code = error.code if isinstance(error.code, int) else bool(error.code)
        raise
    at_exit.code = 0
