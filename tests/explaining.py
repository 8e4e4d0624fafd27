"""Programs to explain, and `jaxmon explain` as a command."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE

from click.testing import CliRunner

from jaxmon.cli.main import main
from tests.preloaded import Program, start_preloaded
from tests.support import Result, clean_environ


PYTHON = Path(sys.executable).name
# Works without a pause: every call of `forward` has a shape of its own, a value is
# fetched in each round, and arrays pile up in one line.
BUSY = """
import sys, threading
import jaxmon
jaxmon.instrument(port=None, memory_interval=0.1, memory_lines_interval=0.1)
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def forward(batch):
    return batch["x"].sum()

kept = []
size = 0
def work():
    global size
    size += 1
    kept.append(jnp.ones((64, 64)) * size)
    for _ in range(20):
        float(forward({"x": np.ones((4, size), np.float32)}))

for _ in range(10): work()
print("ready", flush=True)
threading.Thread(target=sys.stdin.read, daemon=True).start()
while True: work()
"""
IDLE = """
import sys
import jaxmon
jaxmon.instrument(port=None)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def running(path: Path, run_dir: Path) -> Iterator[Program]:
    process = start_preloaded(
        str(path), environ=clean_environ(run_dir), stdin=PIPE, stdout=PIPE
    )
    with process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@contextmanager
def serving(path: Path, answer: bytes | None) -> Iterator[None]:
    """Listen on *path* and send every client *answer*, or nothing at all."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            held = []
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    break
                client.settimeout(60)
                client.recv(4096)
                if answer is None:
                    held.append(client)
                else:
                    with suppress(OSError):  # who asked may have heard enough
                        client.sendall(answer)
                    client.close()
            for client in held:
                client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def page(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def explain(run_dir: Path, *args: str, **env: str) -> Result:
    """Run the command in this process, as if on 80 columns."""
    environ = {"JAXMON_RUN_DIR": str(run_dir), "COLUMNS": "80", **env}
    done = CliRunner().invoke(main, ["explain", *args], env=environ)
    if not isinstance(done.exception, SystemExit | None):
        raise done.exception
    return Result(done.exit_code, done.stdout, done.stderr)
