"""What ranks compiled although others had it in the persistent cache."""

from typing import Any

from jaxmon.facts.host import host
from jaxmon.job.differences import advice
from jaxmon.job.model import Job, MissCause, Verdict
from jaxmon.job.text import document
from jaxmon.job.verdict import judge
from jaxmon.limits import Limits
from tests.job.judged import text
from tests.job.ranks import STEP, report


def rank(
    index: int,
    *,
    compiled: int = 0,
    loaded: int = 0,
    seconds: float = 0.0,
    setup: dict[str, str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return what a rank reports that has compiled and loaded the step so often."""
    found = report(index, age=0.5, **options)
    known = {"compiled": compiled, "loaded": loaded, "compile_seconds": seconds}
    found["functions"][STEP] |= known
    return {**found, "host": f"host-{index // 2}", "setup": setup or {}}


def judged(*ranks: dict[str, Any], limits: Limits | None = None) -> Job:
    """Return the verdict on the job that they make, each on a sidecar of its own."""
    pages = [
        host(
            f"host-{n}",
            {"ranks": [one | {"setup": "s"}], "setups": {"s": one["setup"]}},
        )
        for n, one in enumerate(ranks)
    ]
    [job] = judge(pages, limits).jobs
    return job


def disk(kind: str, path: str = "/cache") -> dict[str, str]:
    """Return a setup with a cache on such a file system."""
    return {"jax_compilation_cache_dir": path, "cache_file_system": kind}


def test_the_first_start_is_nobodys_fault() -> None:
    """All compile, with a cache or without one, and however long that takes."""
    for setup in ({}, disk("nfs4"), disk("ext4")):
        some = [rank(n, compiled=1, seconds=600.0, setup=setup) for n in range(4)]
        job = judged(*some)
        assert job.repeated is None
        assert document(Verdict((job,)))["jobs"][0]["compiled_in_vain"] is None
        assert "compiled" not in text(job)


def test_who_is_late_at_the_first_start_loads_what_the_first_rank_wrote() -> None:
    """That says nothing about the others: they were there before it was written."""
    some = [rank(n, compiled=1, seconds=60.0, setup=disk("nfs4")) for n in range(3)]
    late = rank(3, loaded=1, setup=disk("nfs4"))
    assert judged(*some, late).repeated is None


def test_a_cache_that_all_share_is_no_waste() -> None:
    """All load; or a rank has not come as far yet, or compiles for a moment only."""
    late = rank(3, compiled=0, loaded=1)
    some = [rank(n, loaded=2) for n in range(3)]
    assert judged(*some, late).repeated is None
    quick = rank(3, compiled=2, seconds=0.4)
    assert judged(*some, quick).repeated is None


def test_who_compiles_what_others_load_is_named_with_the_cause() -> None:
    """Ranks, function and seconds; and whether directories differ, or disks do."""
    some = [rank(n, loaded=1, setup=disk("ext4")) for n in range(2)]
    alone = [
        rank(n, compiled=1, seconds=10.0 + n, setup=disk("ext4")) for n in range(2, 4)
    ]
    job = judged(*some, *alone)
    found = job.repeated
    assert found is not None
    assert (found.numbers, found.loaded) == ((2, 3), (0, 1))
    assert (found.seconds, found.longest, found.functions) == (25.0, 13.0, 1)
    assert found.cause is MissCause.LOCAL
    said = text(job)
    assert (
        "ranks 2-3 (on host-1) compiled train_step, which ranks 0-1 loaded from the "
        "persistent cache, for 13.0 s each, at most; 25.0 s in all"
    ) in said
    assert "is on a disk of each host (ext4)" in said

    for limits in (Limits(rank_repeated_seconds=14), Limits(rank_repeated_share=0.03)):
        assert judged(*some, *alone, limits=limits).repeated is None

    other = [one | {"setup": disk("nfs4", "/other")} for one in alone]
    found = judged(*some, *other).repeated
    assert found is not None
    assert found.cause is MissCause.DIRECTORIES

    shared = [one | {"setup": disk("nfs4")} for one in (*some, *alone)]
    found = judged(*shared).repeated
    assert found is not None
    assert found.cause is MissCause.UNKNOWN
    assert "`jaxmon explain`" in advice(found)


def test_no_directory_helps_if_each_process_has_keys_of_its_own() -> None:
    """As in some releases of JAX: then neither is one recommended after a restart."""
    keys = {0: "a", 1: "b", 2: "c", 3: "d"}
    some = [
        rank(0, loaded=1, key_part="a"),
        *(rank(n, compiled=1, seconds=9.0, key_part=keys[n]) for n in range(1, 4)),
    ]
    found = judged(*some).repeated
    assert found is not None
    assert (found.cause, found.numbers) == (MissCause.KEYS, (1, 2, 3))
    assert "No directory helps" in advice(found)
    again = [
        rank(
            n, compiled=1, seconds=90.0, setup={"jax": "1"}, attempt="1", key_part=part
        )
        for n, part in keys.items()
    ]
    assert judged(*again).repeated is None
    same = [one | {"key_part": "a"} for one in again]
    assert judged(*same).repeated is not None


def test_only_what_others_loaded_counts() -> None:
    """What all compiled later, as for a new shape, costs all of them the same."""
    some = [rank(n, compiled=1, loaded=1, seconds=8.0) for n in range(3)]
    found = judged(*some, rank(3, compiled=2, seconds=20.0)).repeated
    assert found is not None
    assert (found.numbers, found.seconds) == ((3,), 10.0)


def test_a_restart_without_a_cache_is_named() -> None:
    """If it is worth one; a first attempt is not, nor is a cache that misses."""
    again = [rank(n, compiled=1, seconds=40.0, setup={"jax": "1"}) for n in range(4)]
    assert judged(*again).repeated is None
    restarted = [one | {"attempt": "2", "job": "train-7"} for one in again]
    job = judged(*restarted)
    found = job.repeated
    assert found is not None
    assert (found.cause, found.numbers) == (MissCause.NO_CACHE, (0, 1, 2, 3))
    assert "compiled train_step again after the restart" in text(job)
    more = Limits(rank_uncached_seconds=1000)
    assert judged(*restarted, limits=more).repeated is None
    quick = list(restarted)
    for one in quick:
        one["functions"][STEP]["compile_seconds"] = 20.0
    assert judged(*quick).repeated is None
    cached = [
        rank(n, compiled=1, seconds=40.0, setup=disk("nfs4"), attempt="2")
        for n in range(4)
    ]
    assert judged(*cached).repeated is None


def test_what_was_long_ago_is_not_mentioned() -> None:
    """Less than a hundredth of the time since the start does not matter any more."""
    some = [rank(n, loaded=1, observed_seconds=3600.0) for n in range(3)]
    slow = rank(3, compiled=1, seconds=35.0, observed_seconds=3600.0)
    assert judged(*some, slow).repeated is None
