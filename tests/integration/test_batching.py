"""
The start of requests to servers that batch, against the books that the servers keep.
"""

import json
from collections import Counter

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


PROGRAM = str(ROOT / "tests" / "programs" / "batching_servers.py")


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("direct", 1),
        ("task", 1),
        ("thread", 1),
        ("deque", 1),
        ("task", 4),
        ("thread", 4),
    ],
)
def test_each_request_has_the_start_that_the_books_say(kind: str, workers: int) -> None:
    """Cold, delayed and warm, each one of them, however the server batches."""
    run = run_preloaded(PROGRAM, kind, str(workers), seconds=420).ok()
    pairs = [tuple(one) for one in json.loads(run.out)]
    sure = [(true, said) for true, said in pairs if true is not None]

    assert [one for one in sure if one[0] != one[1]] == []
    found = Counter(true for true, _ in sure)
    assert min(found[start] for start in ("cold", "delayed", "warm")) >= 3 * workers
    # Few come so close to the end of a compile that clocks cannot tell.
    assert len(pairs) - len(sure) <= len(pairs) // 10
