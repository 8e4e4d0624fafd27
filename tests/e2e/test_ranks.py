"""A real JAX cluster of two processes, watched by a real Prometheus."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from jaxmon.catalog import PROGRAM_DEVICES, PROGRAM_INFO
from jaxmon_alerts import rules as alerts
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import ROOT, clean_environ, free_port, until


# Ten minutes are ten seconds.
SCALE = 60

# A program of its own, under the same job.
ALONE = """
import jax, jaxmon
jaxmon.instrument()
jax.jit(lambda x: x + 1)(1.0).block_until_ready()
print("ready", flush=True)
input()
"""

ALERT = 'ALERTS{alertname="JaxmonProgramsDiverge"}'


@contextmanager
def sidecar(run_dir: Path, port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "jaxmon", "exporter", "--host=127.0.0.1"]
    with subprocess.Popen(
        [*command, f"--port={port}", "--agents-interval=0.5"],
        env=clean_environ(run_dir),
        stderr=DEVNULL,
    ) as process:
        try:
            yield
        finally:
            process.kill()


def started(stack: ExitStack, run_dir: Path, *command: str) -> Program:
    """Start a Python program that ends with *stack*."""
    process = start_preloaded(
        *command,
        environ=clean_environ(run_dir),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    stack.callback(process.communicate)
    # Not terminated: ranks take that for a preemption, and wait for each other.
    stack.callback(process.kill)
    return process


@pytest.mark.exhaustive
def test_ranks_with_different_programs_are_an_alert(run_dir, tmp_path, prometheus):
    """Only programs that span processes may not differ."""
    rules = tmp_path / "alerts.yaml"
    options = alerts.RuleOptions(scale=SCALE)
    rules.write_text(alerts.render(options=options)["alerts.yaml"])
    port, address = free_port(), f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        stack.enter_context(sidecar(run_dir, port))
        program = str(ROOT / "tests" / "programs" / "rank.py")
        ranks = [
            started(stack, run_dir, program, address, str(rank)) for rank in range(2)
        ]
        alone = started(stack, run_dir, "-c", ALONE)
        assert alone.stdout is not None
        assert alone.stdout.readline() == "ready\n"
        for rank in ranks:
            assert rank.stdout is not None
            # Gloo writes lines of its own.
            assert "256.0\n" in iter(rank.stdout.readline, "")
        server = prometheus(
            {"train": [f"127.0.0.1:{port}"]}, config={"rule_files": [str(rules)]}
        )

        def versions(function: str) -> int:
            own = f'{PROGRAM_INFO.name}{{function="__main__.{function}"}}'
            found = server.query(f"count by (fingerprint) ({own})")
            return len(found)

        def devices(function: str) -> list[float]:
            own = f'{PROGRAM_DEVICES.name}{{function="__main__.{function}"}}'
            return [value for _, value in server.query(own)]

        until(lambda: versions("prepare") == 2, "a program of each rank's own")
        until(lambda: versions("<lambda>") == 1, "a program beside them")
        until(lambda: devices("step") == [2, 2], "a program that spans both")
        assert devices("prepare") == [1, 1]
        assert versions("step") == 1
        # Rules are evaluated twice a second; what they find is pending at once.
        seen = (
            f'count_over_time({PROGRAM_DEVICES.name}{{function="__main__.step"}}[1m])'
        )
        until(lambda: server.query(f"min({seen}) > 5") != [], "several scrapes")
        assert server.query(ALERT) == []

        assert ranks[1].stdin is not None
        ranks[1].stdin.write("16\n")
        ranks[1].stdin.flush()
        until(lambda: versions("step") == 2, "another program in one of them")
        firing = f'{ALERT[:-1]},alertstate="firing"}}'
        until(lambda: bool(server.query(firing)), "the alert", seconds=60)
        [(labels, _)] = server.query(firing)
        assert (labels["job"], labels["function"]) == ("train", "__main__.step")
