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
# Seconds until an exited process is reaped. While its threads exit, Linux spins there,
# for some tens of milliseconds if all processors are busy.
LATER = 0.3


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
    "cache.part",
    "calls",
    "charts",
    "checks.keys",
    "checks.numerics",
    "compiles.part",
    "compiles.programs",
    "devices.part",
    "errors.part",
    "history.part",
    "memory.leaks",
    "memory.part",
    "oom.part",
    "recompiles.finder",
    "reports.directory",
    "sampling.part",
    "traces",
    "tracing.part",
    "tracing.reader",
    "transfers",
    "walltime.part",
    "warm.part",
    "warm.recorder",
):
    import_module(f"jaxmon.agent.{_name}")


def first_compile() -> None:
    """Do what JAX does before its first compile, and needs no thread of its own."""
    with suppress(ImportError):
        import_module("jaxlib.mlir.dialects.mhlo")
    import_module("jax.experimental.multihost_utils")
    # It looks for plugins in each installed package.
    bridge = import_module("jax._src.xla_bridge")
    getattr(bridge, "_discover_and_register_pjrt_plugins", list)()


def serve(listener: socket.socket) -> dict[str, Any]:
    """Fork for each request; return it in the child, and exit when stdin ends."""
    running: dict[int, tuple[int, socket.socket]] = {}
    ended: dict[int, float] = {}
    while True:
        wait = LATER if ended else None
        ready, _, _ = select.select([0, listener.fileno(), *running], [], [], wait)
        if 0 in ready:
            os._exit(0)
        for process in running.keys() & set(ready):
            os.close(process)
            pid, client = running.pop(process)
            _respond(client, _code_of(pid))
            client.close()
            ended[pid] = time.monotonic() + LATER
        for pid in [one for one, due in ended.items() if due < time.monotonic()]:
            os.waitpid(pid, 0)
            del ended[pid]
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


def _code_of(pid: int) -> int:
    """Return the exit code of a process that has exited, and leave it to be reaped."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert found is not None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


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
    first_compile()
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
