"""Paths and flags that are different in each process, and those that only look so."""

from datetime import datetime

import pytest

from jaxmon.agent.cache.obstacles import Moment, varying, varying_flag


START = datetime(2026, 11, 23, 11, 30, 5).timestamp()  # noqa: DTZ001 - local time
MOMENT = Moment(4711, START, START + 600)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/cache/4711", "the process id 4711"),
        ("/cache/jax-4711/x", "the process id 4711"),
        ("/cache/run_pid4711", "the process id 4711"),
        (f"/cache/{START - 5:.0f}", f"the time {START - 5:.0f}"),
        (f"/runs/{1000 * START:.0f}/cache", f"the time {START:.0f}"),
        ("/runs/20261123-113000/cache", "the time 20261123-113000"),
        ("/runs/2026-11-23_11-30-04/cache", "the time 2026-11-23_11-30-04"),
        ("/tmp/tmpk3_9zqa1/cache", "the temporary name tmpk3_9zqa1"),  # noqa: S108 - a text
    ],
)
def test_what_is_different_in_each_process_is_named(path: str, part: str) -> None:
    """A process id, a time just before the start, a name of `tempfile`."""
    assert varying(path, MOMENT) == part


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/cache",
        "/cache/v4711b",
        "/cache/14711",
        "/srv/user4711/cache",
        "/cache/20261123",
        "/cache/jax-0.10.2/python3.11",
        "/runs/20261101-113000/cache",
        "/runs/20269923-996161/cache",
        f"/cache/{START - 86_400:.0f}",
        "/tmp/jax-cache",  # noqa: S108 - a text
        "/mnt/tmp/cache",
        "gs://bucket/cache-h100",
    ],
)
def test_what_others_share_is_not(path: str) -> None:
    """A date, an earlier run, a version and a name are the same elsewhere."""
    assert varying(path, MOMENT) == ""


def test_a_low_process_id_is_no_evidence() -> None:
    """In a container the process id is 1 or 7, which names contain anyway."""
    assert varying("/cache/7", Moment(7, START, START)) == ""


def test_a_time_may_be_rounded_up() -> None:
    """A second that has not begun is of this run; later ones are of none."""
    moment = Moment(4711, START, START + 0.4)
    assert varying(f"/cache/{START + 1:.0f}", moment) == f"the time {START + 1:.0f}"
    assert varying(f"/cache/{START + 3:.0f}", moment) == ""


def test_flags_in_the_key_are_named() -> None:
    """Flags for dumps are no part of the key, whatever they contain."""
    dump = "--xla_dump_to=/tmp/4711"
    autotune = "--xla_gpu_dump_autotune_results_to=/runs/4711/autotune"

    assert varying_flag({"XLA_FLAGS": f"{dump} {autotune}"}, MOMENT) == (
        "--xla_gpu_dump_autotune_results_to",
        "the process id 4711",
    )
    assert varying_flag({"XLA_FLAGS": f"{dump} --xla_cpu_x=3"}, MOMENT) is None
    assert varying_flag({}, MOMENT) is None
