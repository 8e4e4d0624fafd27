"""
Real jobs of four processes in which one thing goes wrong, and healthy ones.

``python -m tests.job.faults`` starts a job for each fault and twenty healthy ones, asks
`jaxmon job why` with its default limits, and prints a table in Markdown: whom it named,
and how long after the fault. Then it starts one for each way in which a rank may die,
and prints what `jaxmon job post-mortem` says when all is over. Takes fifteen minutes
and 200 CPU seconds. With names, only these faults.
"""

import json
import sys
import time
from typing import Any, NamedTuple

from tests.helpers.processes import until
from tests.job.running import Job, place, running


class Fault(NamedTuple):
    """
    What goes wrong, in which rank, the kind and the state that should be reported, and
    how the job trains.
    """

    title: str
    rank: int
    kind: str
    state: str = "hung"
    how: str = ""


FAULTS = {
    "asleep": Fault("asleep before a collective", 3, "blocked"),
    "loader": Fault("its loader blocks in `next()`", 1, "data"),
    "prefetch": Fault("waits for a thread that an exception has ended", 0, "data"),
    "lock": Fault("waits for a lock", 2, "lock"),
    "compile": Fault("compiles (traces) for long", 0, "compile", "waiting"),
    "branch": Fault("takes another branch: another collective", 3, "program"),
    "absent": Fault("asleep before `sync_global_devices`", 1, "blocked", how="barrier"),
    "callback": Fault(
        "in a callback that does not return", 0, "callback", how="barrier"
    ),
    "spins": Fault("its own device runs for ever", 2, "local", how="barrier"),
    "stopped": Fault("SIGSTOP", 2, "stopped"),
    "killed": Fault("SIGKILL", 1, "killed"),
}
# How a rank dies; the kind of its end, empty if it does not.
ENDS = {
    "raises": Fault("raises an exception", 2, "exception"),
    "full": Fault("`ENOSPC` while it writes a checkpoint", 3, "exception"),
    "oom": Fault("no device memory left", 1, "oom"),
    "exits": Fault("`sys.exit(3)`", 1, "exit"),
    "lost": Fault("SIGKILL", 1, "killed"),
    "coordinator": Fault("SIGKILL, with the coordinator", 0, "killed"),
    "terminated": Fault("SIGTERM, which JAX handles", 2, ""),
    "in order": Fault("all finish in order", 0, ""),
}
_WITH_LINES = frozenset(("raises", "full", "oom", "exits"))
_STEPS = 60
HEALTHY, SLOW = 10, 10
_LONG = 150.0
_WATCHED = 12.0


def main() -> None:
    chosen = sys.argv[1:] or [*FAULTS, "healthy", *ENDS]
    if {*FAULTS, "healthy"} & {*chosen}:
        _say("| fault | rank | verdict | rank named | line | seconds |")
        _say("|---|---:|---|---|---|---:|")
    for name in chosen:
        if name in FAULTS:
            _say(_faulty(name, FAULTS[name]))
    if "healthy" in chosen:
        for title, slow, runs in (
            ("none", False, HEALTHY),
            ("none, but steps of 1.5 s", True, SLOW),
        ):
            said = [_healthy(slow=slow) for _ in range(runs)]
            right = sum(one == {"progressing"} for one in said)
            cells = f"progressing, and nothing else, in {right} of {runs} runs"
            _say(f"| {title} | | {cells} | | | |")
    if ends := [name for name in ENDS if name in chosen]:
        _say("| rank that dies | rank | named first | line | after | consequences |")
        _say("|---|---:|---|---|---:|---|")
        for name in ends:
            _say(_ended(name, ENDS[name]))


def _ended(name: str, fault: Fault) -> str:
    expected = place(name) if name in _WITH_LINES else ""
    with running(steps=0 if fault.kind else _STEPS) as job:
        began = time.monotonic()
        if name != "in order":
            word = "killed" if name in {"lost", "coordinator"} else name
            job.inflict(word, fault.rank)
        seconds = 0.0
        if fault.kind:
            until(job.first, name, seconds=_LONG)
            seconds = time.monotonic() - began
        # What the others do then: most fail at once, some wait for ever.
        time.sleep(_WATCHED)
        text = job.examine().output
        [found] = json.loads(job.examine("--json").output)["jobs"]
    sys.stderr.write(text)
    first = found["first"] or {}
    right = (first.get("rank"), first.get("ending")) == (fault.rank, fault.kind)
    if not fault.kind:
        right = not found["failed"]
    where = str(first.get("where", "")).rpartition("/")[2]
    failed = sorted(one["rank"] for one in found["consequences"])
    others = [f"{len(failed)} failed"] if failed else []
    states = ("waiting", "running", "finished")
    others += [f"{len(found[key])} {key}" for key in states if found[key]]
    cells = (
        fault.title,
        str(fault.rank) if name != "in order" else "",
        ("yes: " if right else "NO: ") + (first.get("what") or "no failure"),
        ("yes" if where == expected else "NO") if expected else "",
        f"{seconds:.1f} s" if fault.kind else "",
        ", ".join(others),
    )
    return f"| {' | '.join(cells)} |"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _faulty(name: str, fault: Fault) -> str:
    signals = {"stopped", "killed"}
    expected = "" if name in signals else place(name)
    with running(how=fault.how) as job:
        began = time.monotonic()
        job.inflict(name, fault.rank)
        found = until(lambda: _stalled(job, fault.state), name, seconds=_LONG)
        seconds = time.monotonic() - began
        sys.stderr.write(job.run().output)
    first = found["suspects"][0] if found["suspects"] else {}
    named = first.get("ranks") == [fault.rank]
    where = str(first.get("where", "")).rpartition("/")[2]
    cells = (
        fault.title,
        str(fault.rank),
        f"{found['state']}: {first.get('kind')}",
        "yes" if named and first.get("kind") == fault.kind else "NO",
        ("yes" if where == expected else "NO") if expected else "",
        f"{seconds:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _stalled(job: Job, state: str) -> Any:
    [found] = job.why(after=30.0)["jobs"]
    return found if found["state"] == state else None


def _healthy(*, slow: bool) -> set[str]:
    with running() as job:
        if slow:
            job.inflict("slow", 1)
        end, states = time.monotonic() + _WATCHED, set[str]()
        while time.monotonic() < end:
            [found] = job.why(after=30.0)["jobs"]
            more = ("differ", "compiled_in_vain", "time_limit", "nccl", "suspects")
            said = {found["state"], *(one for one in more if found[one])}
            if said - states - {"progressing"}:
                sys.stderr.write(job.run().output)
            states |= said
            time.sleep(0.5)
        return states


if __name__ == "__main__":
    main()
