"""A real job of two processes on two hosts, which are set up in different ways."""

import json
from pathlib import Path

from jaxmon.facts.host import host
from jaxmon.facts.rank import Rank
from jaxmon.job.differences import repeated
from jaxmon.job.model import MissCause
from jaxmon.limits import Limits
from tests.helpers.processes import http_get, until
from tests.job.running import Job, running


ANY = Limits(rank_repeated_seconds=0, rank_repeated_share=0)
FLAG = "XLA_FLAGS --xla_cpu_enable_fast_math"
PASSES = "XLA_FLAGS --xla_disable_hlo_passes"
# Without these passes the program is another one, for which the other rank waits.
OTHER = f"""\
{FLAG}=true --xla_disable_hlo_passes=algsimp,fusion --xla_cpu_use_fusion_emitters=false
jax_default_matmul_precision highest
"""


def cached(directory: Path) -> str:
    """Return lines that have a rank keep all programs in *directory*."""
    return f"""\
jax_compilation_cache_dir {directory}
jax_persistent_cache_min_compile_time_secs 0
"""


def ranks(job: Job) -> list[Rank]:
    """Return what the sidecars of *job* report."""
    pages = [json.loads(http_get(f"{one.url}/job")) for one in job.sidecars]
    return [one for page in pages for one in host("a", page).ranks]


def trained(job: Job) -> bool:
    """Return whether the sidecars have read of both ranks that they got the program."""
    got = [functions(rank).get("train_step", (0, 0)) for rank in ranks(job)]
    return [sum(numbers) > 0 for numbers in got] == [True] * 2


def functions(rank: Rank) -> dict[str, tuple[int, int]]:
    """Return how often *rank* compiled and loaded its functions, by short name."""
    return {
        one.name.rpartition(".")[2]: (one.compiled, one.loaded)
        for one in rank.functions
    }


def test_ranks_that_are_set_up_in_another_way_are_named(tmp_path: Path) -> None:
    """
    Flags, a setting and a directory of the cache that one rank has: each is named with
    its value, and the program that they change. At the next start, with one directory,
    the second rank loads the program as the first does if JAX has one key for it in
    both, and else compiles it, which is no other program, and that is said.
    """
    setups = {
        0: cached(tmp_path / "shared"),
        1: OTHER + cached(tmp_path / "own"),
    }
    with running(2, setups=setups) as job:
        until(lambda: trained(job), "programs")
        [odd] = job.only()["differ"]
        assert odd["ranks"] == [1]
        named = {
            one["name"]: (one["value"], one["others"]) for one in odd["differences"]
        }
        [program] = [name for name in named if name.startswith("program of ")]
        assert program.endswith(".train_step")
        ours, usual = named.pop(program)
        assert ours != usual
        assert named == {
            FLAG: ("true", ""),
            PASSES: ("algsimp,fusion", ""),
            "jax_default_matmul_precision": ("highest", ""),
            "jax_compilation_cache_dir": (
                str(tmp_path / "own"),
                str(tmp_path / "shared"),
            ),
        }
        # Both had to compile, as the first that start.
        assert [functions(one)["train_step"] for one in ranks(job)] == [(1, 0)] * 2
        assert repeated(ranks(job), ANY) is None

    shared = cached(tmp_path / "shared")
    with running(2, setups={0: shared, 1: shared}) as job:
        until(lambda: trained(job), "programs")
        assert job.only()["differ"] == []
        read = ranks(job)
        done = [functions(rank)["train_step"] for rank in read]
        if len({rank.key_part for rank in read}) == 1:
            assert (repeated(read, ANY), done) == (None, [(0, 1), (0, 1)])
        else:
            found = repeated(read, ANY)
            assert found is not None
            assert (found.numbers, found.loaded) == ((1,), (0,))
            assert (found.cause, done) == (MissCause.KEYS, [(0, 1), (1, 0)])
