"""
Faults within programs, planted at a line: what names each, with the line and a figure
known by hand, and nothing that names it in the same program without it.

| Fault | `jaxmon explain` | `jaxmon compiles` |
| --- | --- | --- |
| a loop of Python | finding `unrolled` | EQUATIONS, and a sentence |
| arrays from outside | `captured` | a sentence |
| `cond` under `vmap` | `selected` | |
| rows of a divided table | | COLLECTIVES, asked by the partitioner |
| arguments divided anew | `resharded` | COLLECTIVES |
| state held whole | `whole` | |
| no donation | `copied_argument` | COPIES |
| donation that is not usable | `donation`, if JAX warns | a sentence, no line |
| float64 by accident | `float64` | |
| transposes | | COPIES |
| one line of all | | FLOP |
| results kept for the backward pass | | HOLDS, and a sentence |
| operations on constants | `folded` | |
| a program for each layer | `alike` | PROGRAMS |

Programs that are mostly dispatch are in `tests/exam/b/decode_small_programs.py`, and
below: the finding is `eager`, or `host`.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import JAXMON, ROOT, Program, execute


pytestmark = pytest.mark.exhaustive

PROGRAM = ROOT / "tests" / "programs" / "planted.py"
LINES = PROGRAM.read_text().splitlines()


@pytest.fixture(scope="module")
def ran() -> Iterator[Any]:
    directory = Path(tempfile.mkdtemp(prefix="jm-", dir="/tmp"))
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = ("-m", "tests.programs.planted")
    yield run_preloaded(*command, run_dir=directory, env=flags, cwd=ROOT).json()
    shutil.rmtree(directory, ignore_errors=True)


def line_of(name: str) -> int:
    (found,) = [n for n, of in enumerate(LINES, 1) if of.endswith(f"  # {name}")]
    return found


def at(said: Any, name: str) -> Any:
    """Return what is said of the line of a fault."""
    (found,) = [of for of in said["lines"] if of["line"] == line_of(name)]
    return found


Named = tuple[str, Any]


def fact(kind: str, figure: str) -> Callable[[Any, Any], list[Named]]:
    def named(known: Any, _: Any) -> list[Named]:
        found = known.get(kind)
        return [(found["where"], found[figure])] if found else []

    return named


def exchanged(_: Any, said: Any) -> list[Named]:
    return [
        (f"{of['file']}:{of['line']}", (one["kind"], one["inserted"], one["bytes"]))
        for of in said["lines"]
        for one in of["collectives"]
    ]


def held(_: Any, said: Any) -> list[Named]:
    found = at(said, "kept")
    is_most = found["saved_bytes"] >= 8 * 512 * 16 * 4
    return [(f":{found['line']}", is_most)] if is_most else []


FAULTS: dict[str, tuple[Callable[[Any, Any], list[Named]], Any]] = {
    "unrolled": (fact("unrolled", "times"), 200),
    "captured": (fact("captured", "bytes"), 4 * 8 * (1 << 16)),
    "selected": (fact("selected", "batch"), 16),
    "gathered": (exchanged, ("all-reduce", True, 16 * 8 * 4)),
    "resharded": (fact("resharded", "bytes"), 4 << 20),
    "kept": (held, True),
    "folded": (fact("folded", "operation"), "cumsum"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_line_and_figure_are_named(ran: Any, name: str) -> None:
    """At the line that is planted; the mended twin has nothing of it."""
    named, figure = FAULTS[name]
    faulty, fixed = (ran[f"{twin}_{name}"] for twin in ("faulty", "fixed"))
    [(where, found)] = named(faulty["known"], faulty["said"])

    assert where.endswith(f":{line_of(name)}")
    assert found == figure
    assert named(fixed["known"], fixed["said"]) == []


def test_state_that_is_held_whole_is_named(ran: Any) -> None:
    """With what a device could do without: three of four parts."""
    found = ran["faulty_replicated"]["known"]["whole"]

    assert found["arrays"] == ["given[1]"]
    assert found["bytes"] == 3 << 20
    assert not ran["fixed_replicated"]["known"].get("whole")


def test_copies_that_donation_spares_and_donation_in_vain(ran: Any) -> None:
    """A donated argument that no result can take is none that is copied."""
    copied = ran["faulty_undonated"]
    vain = "1 MiB of arguments are donated in vain: no result has their shape and type."

    assert copied["known"]["copied"]["bytes"] == 1024 * 512 * 4
    assert sum(of["moved_bytes"] for of in copied["said"]["lines"]) == 1024 * 512 * 4
    fixed = ran["fixed_undonated"]
    assert not fixed["known"].get("copied", {}).get("bytes")
    assert not any(of["moved_bytes"] for of in fixed["said"]["lines"])
    # XLA's own text has it; before, JAX itself warns.
    if "keeps one line" not in " ".join(copied["said"]["notes"]):
        assert vain in ran["faulty_unusable"]["said"]["notes"]
    assert vain not in ran["fixed_unusable"]["said"]["notes"]


def test_the_line_that_widens_is_named(ran: Any) -> None:
    """The one that makes the first array of float64."""
    found = ran["faulty_promoted"]["known"]["promoted_at"]

    assert found.endswith(f":{line_of('promoted')}")
    assert not ran["fixed_promoted"]["known"].get("promoted_at")


def test_transposes_and_products_are_at_their_lines(ran: Any) -> None:
    """Three transposes of an array, and nine of ten products."""
    lines = ran["faulty_transposed"]["said"]["lines"]
    [moved] = [of for of in lines if of["moved_bytes"]]

    assert moved["line"] == line_of("transposed") - 1
    assert moved["moved_bytes"] == 3 * 4 * 16**3
    fixed = ran["fixed_transposed"]["said"]["lines"]
    assert not any(of["moved_bytes"] for of in fixed)
    assert at(ran["faulty_dominated"]["said"], "dominated")["flops"] == 9 * 2 * 8**3


def test_layers_that_are_one_program_are_counted(ran: Any) -> None:
    """All of them were read."""
    known = ran["faulty_layered"]["known"]

    assert (known["read"], known["programs"]) == (12, 1)
    assert (ran["fixed_layered"]["known"]["read"], known["programs"]) == (1, 1)


TINY = """
import sys, time
import jax, jax.numpy as jnp

def turned(s):
    return 0.8 * s[0] - 0.6 * s[1], 0.6 * s[0] + 0.8 * s[1]

if sys.argv[1] == "fixed":
    step = jax.jit(lambda s: jax.lax.fori_loop(0, 10**6, lambda _, s: turned(s), s))
else:
    step = jax.jit(turned)
s, end = (jnp.ones(8), jnp.zeros(8)), time.monotonic() + 12
while time.monotonic() < end:
    s = step(s)
    jax.block_until_ready(s)
"""


def test_a_program_that_is_mostly_dispatch_is_named(tmp_path: Path) -> None:
    """With the line that calls it; not the one that does all in a call."""
    (tmp_path / "main.py").write_text(TINY)
    line = TINY.splitlines().index("    s = step(s)") + 1

    def found(kind: str) -> list[Any]:
        options = "--no-tcp", "--summary-dir", ".", "--run-dir", str(tmp_path / "r")
        program = Program(arguments=("main.py", kind))
        status, _, errors = execute([*JAXMON, "run", *options], program, tmp_path)
        assert status == 0, errors
        (summary,) = tmp_path.glob("*.json")
        several = json.loads(summary.read_text())["findings"]
        summary.unlink()
        return [of for of in several if of["topic"] == "host"]

    # On a busy machine, looks may not be enough to be certain.
    faulty = next(filter(None, (found("faulty") for _ in range(3))))
    assert faulty[0]["where"].endswith(f"main.py:{line}")
    assert "do several steps in one, with jax.lax.scan" in faulty[0]["action"]
    assert found("fixed") == []


@pytest.mark.parametrize(
    "name", ["unrolled", "captured", "transposed", "dominated", "kept", "folded"]
)
def test_a_page_names_first_the_line_that_makes_a_compile_slow(
    ran: Any, name: str
) -> None:
    """In its table of lines; a box of the chart has it, too."""
    page = ran[f"faulty_{name}"]["page"]
    [first, *_] = re.findall(
        r'<th scope="row">([^<]*)</th>', page.partition("Lines of")[2]
    )

    assert first.endswith(f"planted.py:{line_of(name)}")
    assert f"<title>{first} " in page
