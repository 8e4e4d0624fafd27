"""
Commands as a user types them: those of documents, `jaxmon demo` and `jaxmon explain`.

Documents' commands are run as they stand, in one shell, one after the other. A block of
``console`` has commands after ``$ `` and what each prints; a block whose first line
names a file, as in ``# train.py``, is that file.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from types import TracebackType
from typing import NamedTuple, Self

from click.testing import CliRunner

from jaxmon.cli.main import main
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import (
    QUICK_COMPILES,
    Result,
    clean_environ,
    free_port,
    until,
)


_BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
_REST = "..."
_END = "-- end of the command --"


class Command(NamedTuple):
    """A command, and the lines that it prints; ``...`` stands for any."""

    text: str
    shown: list[str]


def files(document: str) -> dict[str, str]:
    """Return the files that *document* has, by name."""
    return {
        found[1]: text
        for _, text in _BLOCK.findall(document)
        if (found := _FILE.match(text))
    }


def commands(document: str) -> Iterator[Command]:
    """Yield the commands of *document* in order, without comments behind them."""
    for kind, block in _BLOCK.findall(document):
        if kind != "console":
            continue
        for part in re.split(r"^ *\$ ", block, flags=re.MULTILINE)[1:]:
            text, *shown = part.splitlines()
            yield Command(text.partition("   #")[0].rstrip(), shown)


def fits(shown: list[str], printed: str) -> bool:
    """
    Return whether *printed* has the lines *shown* and no others, ``...`` apart; numbers
    other than 0 may differ, and so may spaces and line breaks.
    """
    parts = "\n".join(shown).split(_REST)
    pattern = ".*".join(re.escape(_words(part)) for part in parts)
    return re.fullmatch(pattern, _words(printed), re.DOTALL) is not None


def _words(text: str) -> str:
    """Return *text* without what differs from run to run."""
    # A line may break between a number and its unit.
    text = " ".join(text.split())
    text = re.sub(r"(\d[\d.,]* (µs|ms|s|min|h)\b ?)+", "TIME ", text)
    text = re.sub(r"\d[\d.,]*\d|[1-9]", "NUMBER", text)
    return "".join(text.split())


class Shell:
    """
    A bash, which is not interactive.

    Args:
        directory: where it starts.
        environ: its environment.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=directory,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._process as process:
            # And all that it started: without job control they are one group.
            os.killpg(process.pid, signal.SIGKILL)

    def run(self, command: str) -> str:
        """Return what *command* prints, and what runs in the background meanwhile."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        if command.endswith("&"):
            apart = "" if ">" in command else " >> shell.log 2>&1 "
            stdin.write(f"{command[:-1]}{apart}&\n")
            command = ":"
        stdin.write(f"{{ {command}; }} 2>&1 < /dev/null; echo; echo '{_END}'\n")
        stdin.flush()
        lines: list[str] = []
        while (line := stdout.readline()).rstrip("\n") != _END:
            assert line, f"the shell ended: {''.join(lines)}"
            lines.append(line)
        return "".join(lines)

    def until_fits(self, command: Command) -> None:
        """
        Run *command* until it prints what is shown, which may take a while; once, if
        that is nothing.
        """
        printed = ""

        def right() -> bool:
            nonlocal printed
            printed = _ELSEWHERE.sub("", self.run(command.text))
            assert command.shown or not printed.strip(), "nothing is shown"
            return fits(command.shown, printed)

        try:
            until(right, f"the output of {command.text}")
        except AssertionError as error:
            expected = "\n".join(command.shown)
            msg = f"{command.text}\nprinted\n{printed}\ninstead of\n{expected}"
            raise AssertionError(msg) from error


DEADLINE = 240

# What other tests run meanwhile, and what bash says of a job that was killed.
_ELSEWHERE = re.compile(
    r"^(  \d+ process(es)? ha(s|ve) an agent in |bash: line \d+: +\d+ Terminated ).*\n",
    re.MULTILINE,
)

_COMMAND = (sys.executable, str(Path(sys.executable).with_name("jaxmon")), "demo")


@contextmanager
def demo(
    directory: Path, *options: str, terminal: int = subprocess.PIPE, **environ: str
) -> Iterator[subprocess.Popen[str]]:
    """
    Run the demo; whatever is left of it at the end was the demo's to stop.

    Args:
        directory: a short path, for the demo's own directory holds Unix sockets.
        options: of the command line.
        terminal: descriptor for what it prints; pipes by default.
        environ: further environment variables.
    """
    with subprocess.Popen(
        [*_COMMAND, "--port", str(free_port()), *options],
        env={
            **clean_environ(TMPDIR=str(directory), TERM="xterm", COLUMNS="80"),
            # Its programs would take the usual port, as do those of other tests.
            "JAXMON_PORT": str(free_port()),
            **QUICK_COMPILES,
            **environ,
        },
        text=True,
        stdin=None if terminal == subprocess.PIPE else terminal,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """
    Return what the demo prints, up to the line that *pattern* finds something in.

    Raises:
        AssertionError: the demo ended before.
    """
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if re.search(pattern, line):
            return seen
    if process.stderr is not None:
        seen += process.stderr.read()
    msg = f"the demo ended without {pattern!r}:\n{seen}"
    raise AssertionError(msg)


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
