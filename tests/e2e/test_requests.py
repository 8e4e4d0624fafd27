"""
A real model server under real concurrent load: its figures are those of the client.
"""

import json
import random
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import product
from pathlib import Path
from subprocess import PIPE

import pytest

from jaxmon.catalog import (
    ERRORS,
    REQUEST_OUTCOMES,
    REQUEST_SECONDS,
    REQUESTS,
    REQUESTS_IN_PROGRESS,
    STARTS,
)
from jaxmon.exposition.families import series
from tests.helpers.preloaded import Program, start_preloaded
from tests.helpers.processes import ROOT, clean_environ


PREDICT, GATHER, STREAM = (
    "/predict/{length}",
    "/v2/gather/{length}",
    "/v2/stream/{length}",
)
ROUTES = {PREDICT: "/predict", GATHER: "/v2/gather", STREAM: "/v2/stream"}
ALL_ROUTES = (*ROUTES, "unmatched")
KNOWN_LENGTHS = (3, 5, 7)
NEW_LENGTHS = range(100, 124)
WORKERS = 8
# In the middle of buckets, so that what the network adds changes none.
DELAYS_MS = (15, 35, 35, 70, 70, 140)


@dataclass(frozen=True)
class Ask:
    """A request and what must become of it."""

    path: str
    route: str
    outcome: str
    start: str


@dataclass(frozen=True)
class Books:
    """What client and server say about the same requests."""

    asked: list[Ask]
    seconds: list[float]
    statuses: list[int]
    traced: dict[str, int]
    samples: dict[str, float]


def load() -> Iterator[Ask]:
    """
    Yield requests in random order: new lengths once each, so that every one of
    them pays for its own compile, among many of lengths that are known.
    """
    chance = random.Random(7)  # noqa: S311 - traffic, not secrets
    asks = []
    for number, length in enumerate(NEW_LENGTHS):
        route, path = list(ROUTES.items())[number % len(ROUTES)]
        asks.append(Ask(f"{path}/{length}", route, "success", "cold"))
    for number in range(240):
        length, delay = chance.choice(KNOWN_LENGTHS), chance.choice(DELAYS_MS)
        path = f"/predict/{length}?ms={delay}"
        asks.append(Ask(path, PREDICT, "success", "warm"))
        if number % 4 == 0:
            asks.append(Ask(f"/v2/stream/{length}", STREAM, "success", "warm"))
        if number % 6 == 0:
            asks.append(Ask(f"/v2/gather/{length}?fail=1", GATHER, "error", "warm"))
        if number % 8 == 0:
            path = f"/nothing/{number}"
            asks.append(Ask(path, "unmatched", "client_error", "warm"))
        if number % 10 == 0:
            path = f"/predict/{length}x"
            asks.append(Ask(path, "unmatched", "client_error", "warm"))
    chance.shuffle(asks)
    yield from asks


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """Put a server under load, and return what both sides say."""
    log = tmp_path_factory.mktemp("service") / "log"
    with (
        log.open("w") as errors,
        start_preloaded(
            str(ROOT / "tests" / "programs" / "service.py"),
            environ=clean_environ(),
            stdin=PIPE,
            stdout=PIPE,
            stderr=errors.fileno(),
        ) as process,
    ):
        try:
            return _run(process, log)
        finally:
            process.kill()


def _run(process: Program, log: Path) -> Books:
    assert process.stdout is not None
    assert process.stdin is not None
    told = process.stdout.readline()
    assert told, log.read_text()
    port = int(told)
    # One after the other: each known length is compiled by exactly one request.
    known = [Ask(f"/predict/{n}", PREDICT, "success", "cold") for n in KNOWN_LENGTHS]
    asked = list(load())
    first = [send(port, ask) for ask in known]
    with ThreadPoolExecutor(WORKERS) as workers:
        rest = list(workers.map(lambda ask: send(port, ask), asked))
    print("report", file=process.stdin, flush=True)
    books = json.loads(process.stdout.readline())
    process.wait(90)
    statuses, seconds = zip(*first, *rest, strict=True)
    return Books([*known, *asked], list(seconds), list(statuses), **books)


def send(port: int, ask: Ask) -> tuple[int, float]:
    """Return status and seconds to the last byte, on a connection of its own."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.connect()
        started = time.perf_counter()
        connection.request("GET", ask.path)
        response = connection.getresponse()
        response.read()
        return response.status, time.perf_counter() - started


@pytest.mark.exhaustive
def test_the_load_is_what_it_should_be(books: Books) -> None:
    """Every request was answered as planned, and each length was traced once."""
    expected = {"success": 200, "client_error": 404, "error": 500}

    assert [expected[ask.outcome] for ask in books.asked] == books.statuses
    assert books.traced == {str(n): 1 for n in (*KNOWN_LENGTHS, *NEW_LENGTHS)}


def test_counts_are_exact(books: Books) -> None:
    """
    Requests by route, outcome and start are those that the client made; as many are
    cold as the model was traced. Which of the others waited for a compile is chance.
    """
    made = Counter((ask.route, ask.outcome, ask.start == "cold") for ask in books.asked)
    found: Counter[tuple[str, str, bool]] = Counter()
    for route, outcome, start in product(ALL_ROUTES, REQUEST_OUTCOMES, STARTS):
        key = route, outcome, start == "cold"
        found[key] += int(books.samples[series(REQUESTS, route, outcome, start)])
    cold = sum(number for (_, _, is_cold), number in found.items() if is_cold)

    assert +found == made
    assert cold == sum(books.traced.values())


def test_nothing_is_in_progress_at_the_end(books: Books) -> None:
    """Each request that was counted in was counted out."""
    name = REQUESTS_IN_PROGRESS.name
    found = {s: v for s, v in books.samples.items() if s.startswith(name)}

    assert found == {series(REQUESTS_IN_PROGRESS, route): 0 for route in ALL_ROUTES}


def test_errors_of_the_program_are_none_of_jax(books: Books) -> None:
    """A handler that raises makes requests fail, and no figure of JAX's errors grow."""
    found = [v for s, v in books.samples.items() if s.startswith(ERRORS.name)]

    assert found
    assert sum(found) == 0


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99])
def test_percentiles_are_those_of_the_client(books: Books, quantile: float) -> None:
    """The percentile without cold requests is in the client's bucket or next to it."""
    mine = sorted(
        seconds
        for ask, seconds in zip(books.asked, books.seconds, strict=True)
        if (ask.route, ask.start) == (PREDICT, "warm")
    )
    ours = bisect_left(REQUEST_SECONDS.buckets, mine[int(quantile * (len(mine) - 1))])

    assert histogram_count(books.samples) == len(mine)
    assert abs(ours - bucket_of(books.samples, quantile)) <= 1


def histogram_count(samples: dict[str, float]) -> float:
    """Return the number of predictions that were not cold."""
    return cumulative(samples)[-1]


def bucket_of(samples: dict[str, float], quantile: float) -> int:
    """Return the number of the bucket that the quantile falls into."""
    counts = cumulative(samples)
    return next(i for i, count in enumerate(counts) if count >= quantile * counts[-1])


def cumulative(samples: dict[str, float]) -> list[float]:
    """Return the buckets of predictions that were not cold, ``+Inf`` last."""
    every = []
    for start in ("delayed", "warm"):
        labels = f'{{route="{PREDICT}",outcome="success",start="{start}",le="'
        lead = f"{REQUEST_SECONDS.name}_bucket{labels}"
        every.append([value for one, value in samples.items() if one.startswith(lead)])
    # A start that did not occur has no buckets.
    return [sum(counts) for counts in zip(*filter(None, every), strict=True)]
