"""
Programs that find JAX and jaxmon imported: that is most of what a small program costs.

For tests of what a program does. What depends on how Python starts and exits, or on the
order of imports, is for `tests.helpers.processes.run_python`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE
from types import TracebackType
from typing import IO, Self

from tests.helpers.processes import NO_FUSION_EMITTERS, ROOT, Result, clean_environ


_SERVER = ROOT / "tests" / "programs" / "preloaded.py"
_MOST_BYTES = 32

# Read as Python starts and as JAX is imported.
_READ_EARLY = ("JAX_", "PYTHON", "LANG", "LC_")
# JAX has no use for these before it compiles.
_IN_TIME = (
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_ENABLE_COMPILATION_CACHE",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES",
)
# Not JAX's.
_OURS = ("JAX_PROCESS_ID",)


def run_preloaded(
    *args: str,
    run_dir: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float = 240.0,
    optimised: bool = False,
) -> Result:
    """
    Run ``-c`` source, ``-m`` module or a script in a clean environment.

    The process is a fork of one that has imported JAX and jaxmon. It exits after
    `atexit`. Unless *optimised*, XLA compiles with little optimisation, and
    ``XLA_FLAGS`` says so.

    Raises:
        subprocess.TimeoutExpired: it took longer than *seconds*; it was killed.
        ValueError: a variable in *env* comes too late.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        program = start_preloaded(
            *args,
            environ=clean_environ(run_dir, **(env or {})),
            cwd=cwd,
            stdin=DEVNULL,
            stdout=out.fileno(),
            stderr=err.fileno(),
            optimised=optimised,
        )
        try:
            code = program.wait(seconds)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
            raise
        return Result(code, _text(out), _text(err))


def start_preloaded(
    *args: str,
    environ: Mapping[str, str],
    cwd: Path | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    optimised: bool = False,
) -> Program:
    """
    Start what `run_preloaded` runs, with the streams that `subprocess.Popen` would give
    it: descriptors, ``PIPE`` or ``DEVNULL``, or those of this process.

    Raises:
        ValueError: a variable in *environ* comes too late.
    """
    if late := shared().late(environ):
        msg = f"{', '.join(late)}: read already; start Python"
        raise ValueError(msg)
    if not optimised:
        flags = f"{environ.get('XLA_FLAGS', '')} {NO_FUSION_EMITTERS}"
        environ = {**environ, "XLA_FLAGS": flags.strip()}
    ours: list[IO[str] | None] = [None, None, None]
    theirs = [0, 1, 2]
    with ExitStack() as started, ExitStack() as failed:
        for number, stream in enumerate((stdin, stdout, stderr)):
            if stream == PIPE:
                ends = list(os.pipe())
                theirs[number] = ends.pop(number > 0)
                started.callback(os.close, theirs[number])
                mode = "w" if number == 0 else "r"
                ours[number] = failed.enter_context(open(ends[0], mode))  # noqa: PTH123 - a descriptor
            elif stream == DEVNULL:
                theirs[number] = os.open(os.devnull, os.O_RDWR)
                started.callback(os.close, theirs[number])
            elif stream is not None:
                theirs[number] = stream
        program = shared().start(
            args,
            environ,
            cwd=cwd,
            files=(theirs[0], theirs[1], theirs[2]),
            optimised=optimised,
        )
        failed.pop_all()
        program.stdin, program.stdout, program.stderr = ours
        return program


class Program:
    """
    A program that runs in a fork, with what `subprocess.Popen` has for one.

    Attributes:
        stdin: of the program, as are the others, if it has a pipe there.
    """

    def __init__(self, arguments: Sequence[str], server: socket.socket) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self._server = server
        self.pid = self._response()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self.wait()

    def communicate(
        self, given: str = "", timeout: float | None = None
    ) -> tuple[str, str]:
        """
        Send *given* as the last input, and return what is printed until the exit.

        Raises:
            subprocess.TimeoutExpired: it took longer than *timeout* seconds; it was
                killed.
        """
        with ThreadPoolExecutor(2) as pool:
            out, err = (
                pool.submit(_rest, stream) for stream in (self.stdout, self.stderr)
            )
            if self.stdin is not None and not self.stdin.closed:
                with suppress(BrokenPipeError), self.stdin:
                    self.stdin.write(given)
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        with self:
            return out.result(), err.result()

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """
        Return the exit code.

        Raises:
            subprocess.TimeoutExpired: it has not exited after *timeout* seconds.
        """
        if self.returncode is None:
            exited, _, _ = select.select([self._server], [], [], timeout)
            if not exited:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
            self.returncode = self._response()
            self._server.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _response(self) -> int:
        response = self._server.recv(_MOST_BYTES)
        assert response, "the process that has imported JAX is gone"
        return int(response)


class Preloaded:
    """
    A process that has imported JAX, jaxmon and *modules*, and runs programs in forks.

    Args:
        modules: to be imported besides what each instrumented program imports.
        environ: its environment, of which programs keep what is read early.
    """

    def __init__(self, *modules: str, environ: Mapping[str, str]) -> None:
        self._environ = environ
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            # A name that nothing else has, and that is no file.
            listener.bind("")
            listener.listen()
            self._address = listener.getsockname()
            self._process = subprocess.Popen(
                [sys.executable, str(_SERVER), str(listener.fileno()), *modules],
                # Threads of OpenBLAS would make Python 3.12 warn of the fork.
                env={**environ, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(listener.fileno(),),
            )

    def suits(self, environ: Mapping[str, str]) -> bool:
        """Return whether it has read early what a program with *environ* would read."""
        return not self.late(environ)

    def late(self, environ: Mapping[str, str]) -> list[str]:
        """Return the variables that a program with *environ* would have read."""
        return [
            name
            for name in sorted(environ.keys() | self._environ.keys())
            if name.startswith((*_READ_EARLY, "LD_"))
            and name not in (*_IN_TIME, *_OURS)
            and environ.get(name) != self._environ.get(name)
        ]

    def start(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        *,
        files: tuple[int, int, int],
        cwd: Path | None = None,
        optimised: bool = False,
        session: bool = False,
    ) -> Program:
        """
        Start what *arguments* of `python` ask for.

        Args:
            arguments: ``-c``, ``-m`` or a script, and what is for it.
            environ: of the program.
            files: descriptors of its stdin, stdout and stderr.
            cwd: its directory; that of the caller by default.
            optimised: whether XLA optimises much.
            session: whether it leads a session of its own.
        """
        request = {
            "arguments": arguments,
            "environ": dict(environ),
            "cwd": str(cwd or Path.cwd()),
            "session": session,
            "config": {
                "jax_disable_most_optimizations": not optimised,
                **{
                    name.lower(): _parsed(environ[name])
                    for name in _IN_TIME
                    if environ.get(name) not in (None, self._environ.get(name))
                },
            },
        }
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            server.connect(self._address)
            socket.send_fds(server, [json.dumps(request).encode()], files)
            return Program(arguments, server)
        except BaseException:
            server.close()
            raise

    def stop(self) -> None:
        self._process.communicate()


def _rest(stream: IO[str] | None) -> str:
    return "" if stream is None or stream.closed else stream.read()


def _parsed(value: str) -> object:
    """Return the number or truth value that a variable has, or else its text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@cache
def shared() -> Preloaded:
    """Return the one for all tests of this process."""
    server = Preloaded(environ=clean_environ())
    atexit.register(server.stop)
    return server
