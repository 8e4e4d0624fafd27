"""
Programs that find JAX and jaxmon imported: that is most of what a small program costs.

For tests of what a program does. What depends on how Python starts and exits, or on the
order of imports, is for `tests.support.run_python`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.support import NO_FUSION_EMITTERS, ROOT, Result, clean_environ


_SERVER = ROOT / "tests" / "programs" / "preloaded.py"

# Read as Python starts and as JAX is imported.
_READ_EARLY = ("JAX_", "PYTHON", "LANG", "LC_")


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
    if late := [name for name in env or () if name.startswith(_READ_EARLY)]:
        msg = f"{', '.join(late)}: use run_python"
        raise ValueError(msg)
    with tempfile.TemporaryDirectory(prefix="jm-preloaded-") as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        out.touch()
        err.touch()
        environ = clean_environ(run_dir, **(env or {}))
        if not optimised:
            flags = f"{environ.get('XLA_FLAGS', '')} {NO_FUSION_EMITTERS}"
            environ["XLA_FLAGS"] = flags.strip()
        code = _server().run(
            {
                "arguments": args,
                "environ": environ,
                "cwd": str(cwd or Path.cwd()),
                "optimised": optimised,
                "files": [os.devnull, str(out), str(err)],
            },
            seconds,
        )
        return Result(code, out.read_text(), err.read_text())


class _Server:
    """The process that has imported JAX. One program at a time."""

    def __init__(self) -> None:
        theirs, self._requests = os.pipe()
        self._responses, writing = os.pipe()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, str(_SERVER), str(theirs), str(writing)],
            # Threads of OpenBLAS would make Python 3.12 warn of the fork.
            env=clean_environ(OPENBLAS_NUM_THREADS="1"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs, writing),
        )
        os.close(theirs)
        os.close(writing)

    def run(self, request: Mapping[str, object], seconds: float) -> int:
        """Return the exit code of the program in *request*."""
        with self._lock:
            os.write(self._requests, json.dumps(request).encode() + b"\n")
            pid = self._response()
            ended, _, _ = select.select([self._responses], [], [], seconds)
            if not ended:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            code = self._response()
        if not ended:
            raise subprocess.TimeoutExpired(str(request["arguments"]), seconds)
        return code

    def stop(self) -> None:
        """Let the process exit."""
        os.close(self._requests)
        self._process.wait()
        os.close(self._responses)

    def _response(self) -> int:
        response = b""
        while not response.endswith(b"\n"):
            more = os.read(self._responses, 1)
            assert more, "the process that has imported JAX is gone"
            response += more
        return int(response)


@cache
def _server() -> _Server:
    server = _Server()
    atexit.register(server.stop)
    return server
