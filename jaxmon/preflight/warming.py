"""
Compiles what a signatures file lists into JAX's persistent cache, in processes.

The modules of a program may hang or end their process when they are imported. Such a
signature fails, and another process does the rest.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmon.declarations import PREFIX
from jaxmon.facts.signatures import FAILED, STATUSES, Document
from jaxmon.host.files import whole as scratch
from jaxmon.host.formats import json_text


_COMMAND = (sys.executable, "-m", "jaxmon.agent.warm.compiling")
_CHUNK = 1 << 16
_MOST_LINE = 1 << 16
_LONGEST = 300
# Written whatever its compile took: the next process waits for it.
_STORE_ALL = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


@dataclass(frozen=True, slots=True)
class Result:
    """
    What became of one signature.

    Args:
        function: name of the function.
        place: number of the signature in the file, of those of its function.
        status: one of `STATUSES`.
        reason: why it failed.
        seconds: to lower and compile it.
    """

    function: str
    place: int
    status: str
    reason: str
    seconds: float


_At = tuple[int, int]


def warm(  # noqa: PLR0913 - one for each option of the command
    document: Document,
    environ: Mapping[str, str],
    *,
    jobs: int,
    main: str,
    seconds: float,
    progress: Callable[[Result], object],
) -> list[Result]:
    """
    Compile every signature in *document*; return what became of each, in its order.
    """
    own = {**_STORE_ALL, **environ, f"{PREFIX}ENABLED": "false"}
    todo = [
        {place for place in _places(document) if place[0] % jobs == job}
        for job in range(jobs)
    ]
    results: dict[_At, Result] = {}

    def take(at: _At, status: str, reason: str, took: float) -> None:
        if at in results or at not in known:
            return
        name = document.functions[at[0]].name
        results[at] = Result(name, at[1], status, reason, took)
        progress(results[at])

    known = _places(document)
    with scratch.directory("jaxmon-warmup-") as directory:
        _run(
            document, [one for one in todo if one], directory, own, main, seconds, take
        )
    return [results[at] for at in sorted(results)]


_Take = Callable[[_At, str, str, float], None]


def _places(document: Document) -> set[_At]:
    return {
        (number, place)
        for number, function in enumerate(document.functions)
        for place in range(len(function.signatures))
    }


def _run(  # noqa: PLR0913, PLR0917 - what `warm` has
    document: Document,
    todo: Sequence[set[_At]],
    directory: Path,
    environ: Mapping[str, str],
    main: str,
    seconds: float,
    take: _Take,
) -> None:
    everything = _places(document)
    with selectors.DefaultSelector() as selector:
        running: list[_Process] = []

        def start(left: set[_At]) -> None:
            file = directory / f"job-{time.monotonic_ns()}.json"
            job = {
                "main": main,
                "done": sorted(everything - left),
                "document": document.as_json(),
            }
            file.write_text(json.dumps(job))
            process = _Process(file, left, environ)
            running.append(process)
            selector.register(process.results, selectors.EVENT_READ, process)

        try:
            for left in todo:
                start(left)
            while running:
                ready = {key.data for key, _ in selector.select(0.1)}
                for process in list(running):
                    ended = process in ready and process.read(take)
                    late = process.silent_for() > seconds
                    if not (ended or late):
                        continue
                    selector.unregister(process.results)
                    running.remove(process)
                    process.end()
                    if not process.left:
                        continue
                    at = process.current or min(process.left)
                    take(at, FAILED, process.why(seconds, late=late), 0.0)
                    process.left.discard(at)
                    if process.left:
                        start(process.left)
        finally:
            for process in running:
                process.end()


class _Process:
    """
    A process that compiles.

    Attributes:
        left: the signatures without a result.
        current: the signature that it works on.
        results: the descriptor that it writes to.
    """

    def __init__(self, file: Path, left: set[_At], environ: Mapping[str, str]) -> None:
        self.left = set(left)
        self.current: _At | None = None
        self._text = b""
        self._heard = time.monotonic()
        self._errors = file.with_suffix(".err")
        self.results, written = os.pipe()
        try:
            with self._errors.open("wb") as errors:
                self._process = subprocess.Popen(  # noqa: S603 - our own module
                    [*_COMMAND, str(file), str(written)],
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=(written,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(self.results)
            raise
        finally:
            os.close(written)

    def silent_for(self) -> float:
        """Return the seconds since its last line."""
        return time.monotonic() - self._heard

    def read(self, take: _Take) -> bool:
        """Read what is there; return whether that was its end."""
        data = os.read(self.results, _CHUNK)
        self._text += data
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            self._heard = time.monotonic()
            # The program has the descriptor, too.
            with suppress(ValueError, KeyError, TypeError):
                self._take(json_text.parse(line), take)
        return not data or len(self._text) > _MOST_LINE

    def _take(self, line: dict[str, Any], take: _Take) -> None:
        if "begins" in line:
            number, place = line["begins"]
            self.current = (number, place)
            return
        number, place = line["at"]
        if line["status"] not in STATUSES:
            return
        reason, seconds = str(line["reason"])[:_LONGEST], float(line["seconds"])
        take((number, place), line["status"], reason, seconds)
        self.left.discard((number, place))

    def end(self) -> None:
        """Kill it and what it started, if they are still there."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self.results)

    def why(self, seconds: float, *, late: bool) -> str:
        """Return why it ended without a result."""
        if late:
            return f"importing or compiling it took longer than {seconds:g} s"
        said = self._errors.read_bytes()[-_CHUNK:].decode("utf-8", "replace")
        last = (said.strip().splitlines() or ["no message"])[-1]
        return f"the process ended while importing or compiling it: {last}"[:_LONGEST]
