"""Rows about instrumented programs: what they do to jaxmon, and meet beside it."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.fakes.hostile import ENDLESS, Hostile, hostile
from tests.faults.agents import agent_up
from tests.faults.matrix import Area
from tests.faults.stage import Page, Sidecar, Stage, success
from tests.helpers.adversaries import ARGUMENTS, SECRETS
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import ROOT, clean_environ


AREA = Area("program")
COUNT = 7
SHOWN = 12

# Takes steps when it is asked to, and ends with its input.
BEGIN = """
import sys
from pathlib import Path
import jax, jaxmon
agent = jaxmon.instrument(port=0, memory_interval=0, time_interval=0)
step = jax.jit(lambda x: x + 1)
def work():
    for x in jaxmon.steps(range(7)):
        step(float(x)).block_until_ready()
"""
WAIT = """
work()
print(agent.url, flush=True)
sys.stdin.read()
"""

# Writes what is damaged of its own files, once it is asked.
CLOSES = """
from tests.programs.closing import closerange, damaged
work()
sys.stdin.readline()
mine = closerange(set(), Path(sys.argv[1]))
sys.stdin.readline()
print(damaged(mine), flush=True)
sys.stdin.read()
"""

# As on vfat, sshfs and other file systems that only have files.
NO_SOCKETS = """
import errno, os, socket
from jaxmon.host.http.sockets import Socket
bind = Socket.bind
def refuse(self, address):
    if self.family == socket.AF_UNIX:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    bind(self, address)
Socket.bind = refuse
"""


class Observed:
    """An instrumented program in the run directory of *stage*."""

    def __init__(
        self, stage: Stage, source: str, *arguments: str, **environ: str
    ) -> None:
        self._log = stage.directory / f"program-{len(list(stage.directory.iterdir()))}"
        with self._log.open("w") as log:
            self.process: Program = start_preloaded(
                *("-c", source, *arguments),
                environ=clean_environ(stage.run_dir, **environ),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log.fileno(),
            )
        stage.later(self._end)

    def _end(self) -> None:
        self.process.kill()
        with self.process:
            pass

    def ask(self) -> None:
        """Send a line."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def finish(self) -> int:
        """End its input, and return its exit code."""
        with suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        return self.process.wait(120)

    def log(self) -> list[str]:
        return self._log.read_text().splitlines()

    def most_bytes(self) -> int:
        """Return the largest size that it had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10


def steps(page: Page) -> float | None:
    return page.get('jaxmon_steps_total{worker="0",loop="train"}')


def whole(sidecar: Sidecar) -> bool:
    page = sidecar.page()
    return agent_up(page, 0) == 1 and steps(page) == COUNT


def sidecar_of(stage: Stage) -> Sidecar:
    return stage.sidecar("--disable", "host", "--disable", "nvml")


def exporting(server: Hostile | None) -> dict[str, str]:
    """Return variables that make a program push to *server*, or where nothing is."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": server.url if server else "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }


@AREA.row("closes all descriptors, and opens its own in their place")
def closes(stage: Stage) -> None:
    program = Observed(stage, BEGIN + CLOSES, str(stage.directory))
    sidecar = sidecar_of(stage)
    stage.until(lambda: whole(sidecar), "the program")
    program.ask()
    stage.shows(lambda: agent_up(sidecar.page(), 0) == 0, "its up 0")
    stage.recovers(lambda: whole(sidecar), "socket, lock and record to be recreated")
    program.ask()
    stage.expect(program.line() == "[]", "its own files, sockets and pipes unchanged")
    said = [line for line in program.log() if "descriptors, and with them" in line]
    stage.expect(len(said) == 1, "one line says that they were recreated")
    stage.expect(program.finish() == 0, "exit code 0")


@AREA.row("killed; its successor is scraped before it counts anything")
def succeeded(stage: Stage) -> None:
    first = Observed(stage, BEGIN + WAIT)
    sidecar = sidecar_of(stage)
    stage.until(lambda: whole(sidecar), "the program")
    killed = time.monotonic()
    first.process.kill()
    stage.shows(lambda: agent_up(sidecar.page(), 0) == 0, "its up 0")
    second = Observed(stage, BEGIN + "sys.stdin.readline()" + WAIT)
    stage.until(lambda: agent_up(sidecar.page(), 0) == 1, "its successor")
    page = sidecar.page()
    stage.expect(steps(page) is None, "none of its counts")
    counting = page['jaxmon_counting_seconds{worker="0"}']
    stage.expect(
        counting < time.monotonic() - killed, "counting begins with the successor"
    )
    second.ask()
    stage.recovers(lambda: whole(sidecar), "the counts of the successor")


@AREA.row("its OTLP receiver never ends a response")
def endless_receiver(stage: Stage) -> None:
    with hostile(ENDLESS["a body"]) as server:
        program = Observed(stage, BEGIN + WAIT, **exporting(server))
        sidecar = sidecar_of(stage)
        stage.until(lambda: whole(sidecar), "the program")
        stage.until(lambda: server.clients > 1, "the first export to end")
        before, clients = program.most_bytes(), server.clients
        stage.until(lambda: server.clients > clients + 5, "five more exports")
        stage.expect(whole(sidecar), "its page goes on")
        grown = (program.most_bytes() - before) >> 20
        stage.expect(grown < 64, "memory grows by less than 64 MB in five exports")
        stage.expect(program.finish() == 0, "exit code 0")


@AREA.row("ends while its collector is down")
def collector_down(stage: Stage) -> None:
    program = Observed(stage, BEGIN + WAIT, **exporting(None))
    sidecar = sidecar_of(stage)
    stage.until(lambda: whole(sidecar), "the program")
    began = time.monotonic()
    stage.expect(program.finish() == 0, "exit code 0")
    seconds = time.monotonic() - began
    # Metrics alone, without a limit shared with all else, would wait that long.
    stage.expect(seconds < 8, f"after {seconds:.1f} s")
    stage.expect(not any("Traceback" in line for line in program.log()), "no traceback")
    stage.shows(lambda: agent_up(sidecar.page(), 0) is None, "not down, but ended")
    stage.expect(steps(sidecar.page()) == COUNT, "its counts kept")


@AREA.row("its run directory is on a file system without sockets")
def no_sockets(stage: Stage) -> None:
    program = Observed(stage, NO_SOCKETS + BEGIN + WAIT)
    stage.expect(program.line().startswith("http://"), "serves its port")
    said = program.log()
    stage.expect(
        len(said) == 1 and "has no Unix sockets" in said[0],
        "one line says what is missing",
    )
    sidecar = sidecar_of(stage)
    stage.expect(success(sidecar.page(), "agents") == 1, "agents success 1")
    stage.expect(agent_up(sidecar.page(), 0) is None, "no agent")
    stage.expect(program.finish() == 0, "exit code 0")
    Observed(stage, BEGIN + WAIT)
    stage.recovers(lambda: whole(sidecar))


@AREA.row("has secrets on its command line")
def secrets(stage: Stage) -> None:
    # As many as are shown of a command line.
    words = [word for given in ARGUMENTS[:SHOWN] for word in given]
    assert len(" ".join(words)) < 400
    Observed(stage, BEGIN + WAIT, *words)
    sidecar = sidecar_of(stage)
    stage.until(lambda: whole(sidecar), "the program")
    stage.until(
        lambda: "--token" in sidecar.get("/api/summary?worker=0"), "its command line"
    )
    pages = ("/", "/metrics", "/api/summary", "/api/summary?worker=0", "/api/history")
    text = "".join(map(sidecar.get, pages))
    stage.expect(
        not any(one in text for one in SECRETS),
        f"no secret in any of {SHOWN} forms on any page",
    )
    stage.expect(r"--token \u2026 --token=\u2026" in text, "names of options shown")
