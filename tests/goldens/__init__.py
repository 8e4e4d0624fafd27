"""
What jaxmon shows outwardly, as small texts: a change of it is a line in a diff.

One program and one sidecar yield all of them. What is generated (`make generate`), such
as help texts, is committed already.
"""

from __future__ import annotations

import difflib
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from jaxmon.catalog import BY_NAME, SLOWDOWN
from jaxmon.cli.main import main
from jaxmon.cli.workers import AgentProcess, pick
from jaxmon.exposition.parse import labels, parse
from tests.helpers.processes import (
    QUICK_COMPILES,
    ROOT,
    clean_environ,
    free_port,
    http_get,
    until,
)
from tests.helpers.sidecars import exporters
from tests.job.ranks import report, waiting
from tests.job.served import agent, sidecar


DIRECTORY = ROOT / "tests" / "goldens"
COMMAND = "python -m tests.goldens --write"

# Maps whose keys are data, in any document.
_MAPS = re.compile(
    r"(.*\.)?(functions|(?<!cache\.)(?<!charts\.)requests|(?<!charts\.)steps|loops"
    r"|queues|values|checkpoints|dtypes|states|interruptions|run(s\[\])?\.seconds"
    r"|packages|setup|setups(\.\*)?|versions|collectors\[\]\.errors)"
)

DROPPED = {
    "command-explain:overview": "debug-overview has it",
    "command-explain:events": "debug-events has them",
    "(debug-rank|command-report):run": "debug-overview has it",
    r"sidecar-job:ranks\[\]\.run": "debug-overview has it",
    ".*-history:(times|series.*)": "a value each five seconds, or none yet",
    r".*:time\.(lately|recent)\.(places|states)": "empty if it was idle",
    r".*:time\.\w+\.activities": "what is short is not seen each time",
    r".*:queues(\[\]|\.\*)\.(lows|highs)": "after 20 seconds, if the test is slow",
    r".*:time\.(rates|loops)": "once there were seconds between two counts, or calls",
    ".*:notes": "they say that the processor was busy, if it was",
    r".*:agents\[\]\.notes": "likewise",
}
"""Below which paths of which documents nothing is kept, as expressions, and why."""

# Of a compile that a busy machine makes slow.
_OF_SLOW = re.compile(r"debug-events:events\[\]\.details\.(cache|requests)")
# Null until a call has been timed.
_TIMED = re.compile(
    r".*:functions(\.\*|\[\])\.(flops\.(achieved|of_peak)"
    r"|samples\.execution_(mean|seconds)|signatures\[\]\.calls)"
)

_PAGES = ("overview", "functions", "memory", "environment", "events", "rank", "stacks")
_SIDECAR = (
    *("--demo", "--host", "127.0.0.1", "--peer-access", "--findings", "all"),
    *("--disable", "nvml", "--disable", "gpm", "--disable", "tpu", "--disable", "nccl"),
)


def gathered() -> dict[str, str]:
    """Return the text of each golden file by its name."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        run_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        said = stack.enter_context(_program(run_dir))
        worker = pick(None, run_dir)
        until(lambda: _is_settled(worker), "what is shown after some seconds")
        for page in (*_PAGES, "signatures", "hlo", "programs"):
            found[f"debug-{page}"] = worker.fetch(f"/debug/{page}")
        api = said["url"].replace("/metrics", "/api")
        for page in ("summary", "history"):
            found[f"agent-{page}"] = json.loads(http_get(f"{api}/{page}"))
        start = stack.enter_context(exporters(run_dir))
        exporter = start(*_SIDECAR, "--price", "H100=2.5", "--disk", "/")
        exporter.until_ready()
        until(
            lambda: any(one["findings"] for one in exporter.summary()["agents"]),
            "what the sidecar finds in the program",
        )
        for page in ("api/summary", "api/history", "job"):
            name = f"sidecar-{page.rpartition('/')[2]}"
            found[name] = json.loads(exporter.get(f"/{page}"))
        targets = ("--targets", exporter.url.rpartition("/")[2])
        for name, *options in (
            *(["ps"], ["explain"], ["report"], ["compare", "0", "0"]),
            *(["doctor", "--skip-jax"], ["job post-mortem", *targets]),
            ["job goodput", *targets],
        ):
            page = f"command-{name.replace(' ', '-')}"
            found[page] = _printed(run_dir, *name.split(), *options)
        agents = _series(lambda: http_get(said["url"]))
        metrics = {"metrics-agent": agents, "metrics-sidecar": _series(exporter.get)}
    found["command-job-why"] = _why()
    trees = {name: tree(name, document) for name, document in found.items()}
    loaded = json.dumps(said["loaded"], indent=2) + "\n"
    return {"loaded": loaded, **metrics, **trees}


def compared(found: dict[str, str]) -> str:
    """Return how *found* differs from the files, as a diff; empty if it does not."""
    kept = {path.stem: path.read_text() for path in DIRECTORY.glob("*.txt")}
    return "".join(
        line
        for name in sorted(kept.keys() | found.keys())
        for line in difflib.unified_diff(
            kept.get(name, "").splitlines(keepends=True),
            found.get(name, "").splitlines(keepends=True),
            *(f"{DIRECTORY.name}/{name}.txt", "now"),
            n=1,
        )
    )


def write(found: dict[str, str]) -> None:
    """Make the files those of *found*."""
    for path in DIRECTORY.glob("*.txt"):
        path.unlink()
    for name, text in found.items():
        (DIRECTORY / f"{name}.txt").write_text(text)


def _is_settled(worker: AgentProcess) -> bool:
    """Return whether it stands long enough for all that is reported then."""
    overview, rank = (worker.fetch(f"/debug/{page}") for page in ("overview", "rank"))
    growth = overview["queues"]["predict"]["growth"]
    late = (overview["charts"], overview["time"]["now"].get("stack"))
    return all(late) and None not in (growth, rank["starved_ratio"])


@contextmanager
def _program(run_dir: Path) -> Iterator[Any]:
    """Run the program, and give what it prints when it is ready."""
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.programs.outward"),
                *(directory, f"127.0.0.1:{free_port()}"),
            ],
            cwd=ROOT,
            env=clean_environ(run_dir, **QUICK_COMPILES),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        assert program.stdout is not None
        yield json.loads(program.stdout.readline())


def _printed(run_dir: Path, *arguments: str) -> Any:
    """Return the document that a command prints."""
    environ = {"JAXMON_RUN_DIR": str(run_dir)}
    done = CliRunner().invoke(main, [*arguments, "--json"], env=environ)
    return json.loads(done.stdout)


def _why() -> Any:
    """Return what `job why` prints of a job that hangs: three wait for a fourth."""
    with ExitStack() as stack:
        run_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        for slot, rank in enumerate((*waiting(3), report(3, calls=811))):
            agent(stack, run_dir, slot, rank)
        target = stack.enter_context(sidecar(run_dir, peer_access=True))
        return _printed(run_dir, "job", "why", "--stacks", "--targets", target)


def _series(get: Callable[[], str]) -> str:
    """Return name, names of labels and type of the series at an endpoint."""
    get()  # what that takes is on the next
    found = {
        f"{family.name}{{{','.join(name for name in labels(text) if name != 'le')}}}"
        f" {family.kind}\n"
        for family in parse(get())
        for _, text, _ in family.samples
        if not _depends(family.name)
    }
    return "".join(sorted(found))


def _depends(name: str) -> bool:
    """Return whether a metric depends on the host: a cgroup, or other programs."""
    metric = BY_NAME.get(name)
    return metric is SLOWDOWN or (metric is not None and metric.group == "Container")


def tree(name: str, document: Any) -> str:
    """Return each path in the document *name*, and what is there, one a line."""
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for path, kind in _leaves(document, f"{name}:"):
        either = kind in {"null", "number"} and _TIMED.fullmatch(path)
        kinds[path] |= {"null", "number"} if either else {kind}
    return "".join(
        f"{path.removeprefix(f'{name}:')}: {' | '.join(sorted(found))}\n"
        for path, found in sorted(kinds.items())
        # A list or map that is empty only here and there adds nothing.
        if not (found <= {"[]", "{}"} and any(_below(path, one) for one in kinds))
    )


def _below(path: str, other: str) -> bool:
    return other != path and other.startswith((f"{path}.", f"{path}[]"))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield each path and kind of value, several times if there are several."""
    if _OF_SLOW.fullmatch(path):
        return
    if any(re.fullmatch(dropped, path) for dropped in DROPPED):
        yield path, "..."
    elif isinstance(value, dict | list) and not value:
        yield path, str(value)
    elif isinstance(value, dict):
        data = _MAPS.fullmatch(path.partition(":")[2])
        for key, one in value.items():
            name = "*" if data else key
            yield from _leaves(
                one, f"{path}{name}" if path[-1] == ":" else f"{path}.{name}"
            )
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one, f"{path}[]")
    elif value is None or isinstance(value, bool):
        yield path, "null" if value is None else "bool"
    else:
        yield path, "string" if isinstance(value, str) else "number"
