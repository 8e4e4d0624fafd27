"""What is said of processes that have ended beside those that run."""

from pathlib import Path

import pytest

from jaxmon.cli.workers import AgentProcess, ends_beside
from jaxmon.facts import endings
from jaxmon.facts.ending import CRASHED, RUNNING, ProcessEnd


def running(program: str, age: float) -> AgentProcess:
    """Return a process that runs *program* for *age* seconds, without a pid."""
    process = {"program": program, "observed_seconds": age}
    return AgentProcess("0", Path("agent-0.sock"), {"process": process})


def ended(program: str, pid: int = 7) -> ProcessEnd:
    """Return the end of *program* two minutes ago."""
    before = endings.now()["boottime"] - 120.0
    return ProcessEnd(1, 0, RUNNING, pid=pid, program=program, boottime=before)


TRAIN = "python3 train.py"
OTHERS = "Ended: pid 7 (python3 train.py), last seen 2 min ago."


@pytest.mark.parametrize(
    ("workers", "leads"),
    [
        # A rank of the same job, or a replica, has lost the one that ended.
        ([running(TRAIN, 150.0)], True),
        ([running("/usr/bin/python /srv/train.py --fast", 150.0)], True),
        ([running(TRAIN, 150.0), running("python3 serve.py", 10.0)], True),
        # Another was started since, or something else.
        ([running(TRAIN, 90.0)], False),
        ([running(TRAIN, 150.0), running(TRAIN, 90.0)], False),
        ([running("python3 serve.py", 150.0)], False),
        ([running("python3 serve.py", 10.0)], False),
    ],
)
def test_an_end_is_first_if_what_runs_has_lost_it(
    workers, leads, tmp_path, monkeypatch
):
    """What was started since is what is asked for; the end is a line below."""
    monkeypatch.setattr(endings, "ends", lambda _: {"1": ended(TRAIN)})
    first, others = ends_beside(workers, tmp_path)
    assert [line.partition(" ended ")[0] for line in first] == (
        ["pid 7 (python3 train.py)"] if leads else []
    )
    assert others.partition(" `")[0] == ("" if leads else OTHERS)


def test_many_ends_take_one_line(tmp_path, monkeypatch):
    """Their number is enough; how they ended, another command says."""
    many = {str(n): ended(TRAIN, n) for n in range(1, 6)}
    many["6"] = ended(TRAIN, 6).replace(state=CRASHED, kind="exception")
    many["7"] = ended(TRAIN, 8).replace(boottime=endings.now()["boottime"] - 700.0)
    monkeypatch.setattr(endings, "ends", lambda _: many)
    first, others = ends_beside([running(TRAIN, 9.0)], tmp_path)
    assert not first
    assert others.endswith(" and 4 more. `jaxmon job post-mortem` says how.")
    assert others.count("train.py") == 2
