"""
Programs with one mistake each, and healthy ones, and what jaxmon says of them.

``python -m tests.verdicts`` runs them, and prints a table; with names, these only.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import QUICK_COMPILES, ROOT, Result


DIRECTORY = ROOT / "tests" / "programs" / "verdicts"
# Runs are over in seconds.
_LIMITS = DIRECTORY / "limits.json"
LONG = 10.0
"""Seconds; what runs longer is not for every run of the tests."""

# A program runs at least so many times as long as it compiled, which may take long on a
# busy machine, before that is little of its time, or hardly any.
_LITTLE, _HARDLY = "4", "15"

# Healthy programs run until compiling was hardly any of their time; how fast they are
# is of no interest.
_EASY = f"{QUICK_COMPILES['XLA_FLAGS']} --xla_cpu_multi_thread_eigen=false"


class Mistake(NamedTuple):
    """
    A program with a mistake.

    Attributes:
        topic: of the finding that it should get first.
        seconds: how long it runs at least.
        hangs: whether it is judged after that time, since it does not end.
    """

    topic: str
    seconds: float = 6.0
    hangs: bool = False


class Attempts(NamedTuple):
    """
    The processes of a run, the last of which ends by itself, and is judged.

    Attributes:
        number: how many.
        waiting: seconds before each but the first.
    """

    number: int
    waiting: float = 0.0


MISTAKES = {
    "forgotten_jit": Mistake("eager"),
    "optimizer_outside": Mistake("eager"),
    "elements": Mistake("eager"),
    "sizes_at_start": Mistake("operations"),
    "slow_files": Mistake("data_wait"),
    "decoding_in_python": Mistake("data_wait"),
    "loader_thread": Mistake("interpreter", 10.0),
    "shared_lock": Mistake("blocked"),
    "joined_loader": Mistake("blocked"),
    "backing_off": Mistake("blocked"),
    "saving_each_step": Mistake("blocked"),
    "bookkeeping": Mistake("host"),
    "collecting_garbage": Mistake("garbage"),
    "numpy_arguments": Mistake("numpy_argument"),
    "callbacks": Mistake("effects"),
    "growing_batches": Mistake("recompile"),
    "growing_under_grad": Mistake("recompile"),
    "new_lambda": Mistake("recompile"),
    "new_closure_under_grad": Mistake("recompile"),
    "static_rate": Mistake("recompile"),
    "growing_history": Mistake("recompile"),
    "padded_batches": Mistake("padding"),
    "ever_more_work": Mistake("slower", 200.0),
    "growing_queue": Mistake("queue", 150.0),
    "cold_start": Mistake("cold_requests", 200.0),
    "unpadded_prompts": Mistake("recompile"),
    "long_prompts": Mistake("oom"),
    "unusable_cache": Mistake("cache", 20.0),
    "becomes_nan": Mistake("nonfinite", 5.0),
    "logs_nan": Mistake("nonfinite_value", 2.0),
    "diverges": Mistake("diverging", 2.0),
    "frozen_noise": Mistake("frozen_value", 0.5),
    "frozen_time": Mistake("frozen_value", 0.5),
    "dropped_update": Mistake("dropped_update", 0.5),
    "leaked_value": Mistake("leaked_tracer", 0.5),
    "printed_value": Mistake("printed_tracer", 0.5),
    "swallowed": Mistake("error"),
    "same_key": Mistake("same_key", 12.0),
    "donated_and_read": Mistake("error"),
    "donated_in_vain": Mistake("warning_donation", 0.5),
    "failing_requests": Mistake("requests"),
    "hanging_request": Mistake("hanging", 30.0, hangs=True),
    "stuck_loader": Mistake("stalled", 80.0, hangs=True),
    "deadlock": Mistake("stalled", 40.0, hangs=True),
    "lost_steps": Mistake("lost_progress"),
    "damaged_checkpoint": Mistake("old_checkpoint"),
    "slow_restore": Mistake("recovery"),
    "frequent_saves": Mistake("checkpoint_time"),
    "slow_scheduler": Mistake("between_attempts"),
    "same_bad_batch": Mistake("no_progress"),
}
HEALTHY = (
    *("training", "reading_each_loss", "several_models", "transformations"),
    *("idle_server", "busy_server", "evaluation_between", "prefetching"),
    *("loss_scaling", "scanned_epochs", "rare_checkpoints", "replicated"),
    *("within_a_library", "connections", "folded_key", "warmed_up"),
    *("preempted", "epoch_by_epoch"),
)
RUNS = {
    "frequent_saves": Attempts(3),
    "lost_steps": Attempts(4),
    "damaged_checkpoint": Attempts(2),
    "slow_restore": Attempts(3),
    "slow_scheduler": Attempts(2, waiting=5.0),
    "same_bad_batch": Attempts(5),
    "preempted": Attempts(3),
    "epoch_by_epoch": Attempts(1),
}


@dataclass(frozen=True)
class Verdict:
    """
    What jaxmon said of a program.

    Attributes:
        findings: as JSON, most urgent first, without notes.
        report: printed at the exit, empty if the program hangs.
    """

    findings: list[dict[str, Any]]
    report: str

    def rank(self, name: str) -> int | None:
        """Return the rank of the finding that program *name* should get, from 1."""
        for rank, one in enumerate(self.findings, 1):
            if one["topic"] == MISTAKES[name].topic and _names(one, lines(name)):
                return rank
        return None


def run(name: str) -> Verdict:
    """Run the program called *name*, as often as it is started again."""
    if name not in RUNS:
        ended = _ended(name)
        if "Too few looks" in ended.err:  # a busy machine takes longer for enough
            ended = _ended(name, times=3)
        return _judged(ended)
    attempts = RUNS[name]
    with tempfile.TemporaryDirectory() as state:
        for _ in range(attempts.number - 1):
            assert _ended(name, JAXMON_RUN_STATE=state).code
            time.sleep(attempts.waiting)
        return _judged(_ended(name, JAXMON_RUN_STATE=state))


def _ended(name: str, *, times: int = 1, **environ: str) -> Result:
    mistake = MISTAKES.get(name, Mistake(""))
    hangs = ["hangs"] if mistake.hangs else []
    environ = {"JAXMON_LIMITS": str(_LIMITS), **environ}
    return run_preloaded(
        "-m",
        "tests.programs.verdicts",
        name,
        str(times * mistake.seconds),
        _LITTLE if mistake.topic else _HARDLY,
        *hangs,
        env=environ if mistake.topic else {"XLA_FLAGS": _EASY, **environ},
        cwd=ROOT,
        seconds=300,
    )


def _judged(ended: Result) -> Verdict:
    found = json.loads(ended.ok().out.splitlines()[-1])
    return Verdict([one for one in found if one["urgency"] != "note"], ended.err)


def lines(name: str) -> frozenset[str]:
    """Return the lines to blame for the mistake of *name*, as ``file:line``."""
    return frozenset(_blamed().get(name, ()))


def _names(finding: dict[str, Any], blamed: frozenset[str]) -> bool:
    told = " ".join([finding["where"], finding["verdict"], *finding["evidence"]])
    return not blamed or not blamed.isdisjoint(re.findall(r"\w+\.py:\d+", told))


@cache
def _blamed() -> dict[str, list[str]]:
    """
    Return the lines that end with ``# here`` by program. What is no program belongs to
    the next one.
    """
    found: dict[str, list[str]] = {}
    for file in sorted(DIRECTORY.glob("*.py")):
        waiting: list[str] = []
        name = ""
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if line.startswith("def "):
                name = line[len("def ") : line.index("(")]
                if name in MISTAKES:
                    found[name], waiting = waiting, []
            if line.endswith("# here"):
                known = found.get(name, waiting)
                known.append(f"{file.name}:{number}")
    return found


def main() -> None:
    """Print a table of programs and verdicts."""
    names = sys.argv[1:] or (*MISTAKES, *HEALTHY)
    told = sys.stdout
    told.write("| Program | Mistake | Rank | First finding | Seconds | Others |\n")
    told.write("| --- | --- | --- | --- | --- | --- |\n")
    for name in names:
        told.write(row(name, run(name)))
        told.flush()


def row(name: str, verdict: Verdict) -> str:
    """Return the row of program *name*."""
    topic = MISTAKES[name].topic if name in MISTAKES else "none"
    rank = verdict.rank(name) or "missed" if name in MISTAKES else ""
    first, *others = verdict.findings or [{"verdict": "", "seconds": 0.0}]
    rest = ", ".join(one["topic"] for one in others)
    return (
        f"| {name} | {topic} | {rank} | {first['verdict']} "
        f"| {first['seconds']:.1f} | {rest} |\n"
    )


if __name__ == "__main__":
    main()
