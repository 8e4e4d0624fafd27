"""What a program sees of its own failures is the same with jaxmon."""

import json
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from jaxmon.host.bootstrap import environment
from tests.helpers import processes
from tests.helpers.processes import Result


PROGRAM = processes.ROOT / "tests" / "programs" / "tracebacks.py"
MODES = ("auto", "off", "tracebackhide", "remove_frames", "quiet_remove_frames")


def both(*args: str, before_each: Any = lambda: None, **env: str) -> list[Result]:
    """Run Python with *args* without jaxmon and with it, as `jaxmon run` starts it."""
    results = []
    for settings in (None, {"port": None, "socket": False}):
        extra = dict(env)
        if settings is not None:
            bootstrapped = environment({}, settings)
            extra |= {name: str(text) for name, text in bootstrapped.items()}
        before_each()
        results.append(processes.run_python(*args, env=extra))
    return results


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Return what the program notes without jaxmon and with it."""
    # Its path is part of the key, so both use the same directory.
    cache = tmp_path_factory.mktemp("compiled") / "cache"

    def empty() -> None:
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()

    plain, observed = both(str(PROGRAM), str(cache), before_each=empty)
    return plain.json(), observed.json()


def test_only_one_of_the_two_was_instrumented(noted: tuple[Any, Any]) -> None:
    """The comparison compares what it says it does."""
    plain, observed = noted

    assert plain["agent"] is False
    assert observed["agent"] is True
    assert plain["counted"].startswith("jaxlib.")
    assert observed["counted"] == "jaxmon.agent.counted"


@pytest.mark.parametrize("mode", MODES)
def test_tracebacks_are_equal_line_by_line(noted: tuple[Any, Any], mode: str) -> None:
    """Each failure prints the same, and so does every exception in its chain."""
    plain, observed = (books["failures"][mode] for books in noted)

    assert plain.keys() == observed.keys()
    assert [name for name, found in plain.items() if found == "no error"] == []
    for name, (lines, links) in plain.items():
        other_lines, other_links = observed[name]
        if name != "shape_evaluated":
            assert lines == other_lines, name
        assert comparable(links) == comparable(other_links), name
    assert "jaxmon/" not in json.dumps(observed)


def comparable(found: Any) -> Any:
    """
    Return frames, nested in anything, without the line within `jax.eval_shape`.

    Since 0.9 it asks ``type(fun) is PjitFunction`` and takes another line of its own
    when a stand-in says no.
    """
    if not isinstance(found, list):
        return found
    if len(found) == 4 and found[2] == "eval_shape":
        return found[0], found[2]
    return [comparable(one) for one in found]


def test_user_code_sees_the_same_stack(noted: tuple[Any, Any]) -> None:
    """In traced bodies, callbacks and threads `traceback.extract_stack` is the same."""
    plain, observed = (books["stacks"] for books in noted)

    assert plain.keys() == observed.keys()
    assert len(plain["callback"]) == 2
    for where, found in plain.items():
        assert comparable(found) == comparable(observed[where]), where


def test_programs_carry_the_same_source_lines(noted: tuple[Any, Any]) -> None:
    """Jaxprs, StableHLO with locations, and HLO metadata are equal, full or short."""
    plain, observed = (books["texts"] for books in noted)

    assert plain.keys() == observed.keys()
    for name, text in plain.items():
        assert text.splitlines() == observed[name].splitlines(), name
    assert any(PROGRAM.name in text for text in plain.values())


def test_the_persistent_cache_has_the_same_keys(noted: tuple[Any, Any]) -> None:
    """A process with jaxmon and one without share their compiled programs."""
    plain, observed = (books["cached"] for books in noted)

    assert len([name for name in plain if name.startswith("jit_stored-")]) == 2
    assert len(plain) == len(observed)
    if version("jax").startswith("0.8."):
        # There, pmap's program has another key in every process, without us too.
        plain, observed = (
            [name for name in names if "call_wrapped" not in name]
            for names in (plain, observed)
        )
    assert plain == observed


UNCAUGHT = """
import sys, threading
import jax
@jax.jit
def inner(x):
    raise ValueError("of the user")
@jax.jit
def outer(x):
    return inner(x)
def run():
    if "cached" in sys.argv:
        good = jax.jit(lambda x: x + 1)
        array = jax.numpy.ones(3)
        good(array)
        array.delete()
        good(array)
    outer(1.0)
if "thread" in sys.argv:
    thread = threading.Thread(target=run, name="theirs")
    thread.start()
    thread.join()
else:
    run()
"""


@pytest.mark.parametrize(
    "where", ["main", pytest.param("thread cached", marks=pytest.mark.exhaustive)]
)
def test_uncaught_errors_print_the_same(tmp_path: Path, where: str) -> None:
    """What Python writes about an uncaught error is the same, in threads as well."""
    script = tmp_path / "uncaught.py"
    script.write_text(UNCAUGHT)

    plain, observed = both(os.fspath(script), *where.split())

    assert "Traceback" in plain.err
    assert plain == observed
