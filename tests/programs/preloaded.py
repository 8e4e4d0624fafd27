"""
Imports JAX and jaxmon once, and runs each requested program in a fork.

See `tests.helpers.preloaded`.

Arguments: the descriptor of a socket that listens, and further modules to import. Each
client sends one request, which is JSON, with the descriptors of the program's stdin,
stdout and stderr. It receives the process id and, once the program exited, its exit
code. The server exits when its stdin ends.
"""

import atexit
import gc
import json
import os
import runpy
import select
import socket
import sys
import time
import types
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any


MOST_BYTES = 1 << 20


class Exit:
    """
    Exits without taking apart what was imported, which costs as much as importing it.
    """

    code = 1

    def now(self) -> None:
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
    "recompiles.finder",
    "sampling.part",
    "traces",
    "tracing.part",
    "transfers",
    "walltime.part",
    "warm.recorder",
):
    import_module(f"jaxmon.agent.{_name}")


def serve(listener: socket.socket) -> dict[str, Any]:
    """Fork for each request; return it in the child, and exit when stdin ends."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([0, listener.fileno(), *running], [], [])
        if 0 in ready:
            os._exit(0)
        for process in running.keys() & set(ready):
            os.close(process)
            pid, client = running.pop(process)
            _respond(client, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            client.close()
        if listener.fileno() not in ready:
            continue
        client, _ = listener.accept()
        message, files, _, _ = socket.recv_fds(client, MOST_BYTES, 3)
        pid = os.fork()
        if pid == 0:
            request: dict[str, Any] = json.loads(message)
            return {**request, "files": files}
        for file in files:
            os.close(file)
        _respond(client, pid)
        running[os.pidfd_open(pid)] = pid, client


def become(request: dict[str, Any]) -> None:
    """Take on descriptors, session, environment, directory and JAX's options."""
    for number, file in enumerate(request["files"]):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    os.chdir(request["cwd"])
    for name, value in request["config"].items():
        jax.config.update(name, value)


def run(arguments: list[str]) -> None:
    """Run what *arguments* of `python` ask for: ``-c``, ``-m`` or a script."""
    kind, *rest = arguments
    sys.orig_argv = [sys.executable, *arguments]
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


def _respond(client: socket.socket, number: int) -> None:
    # It may be gone, or have enough of it.
    with suppress(OSError):
        client.sendall(str(number).encode())


if __name__ == "__main__":
    number, *modules = sys.argv[1:]
    for _name in modules:
        import_module(_name)
    # Or each program's collector goes through all of it, and has the kernel copy it.
    gc.collect()
    gc.freeze()
    asked = serve(socket.socket(fileno=int(number)))
    become(asked)
    try:
        run(asked["arguments"])
    except SystemExit as error:
        at_exit.code = error.code if isinstance(error.code, int) else bool(error.code)
        raise
    at_exit.code = 0
