"""Programs as public models have them: what is said of each, and plain counts of it."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


PROGRAM = ROOT / "tests" / "programs" / "model_shapes.py"
DEVICES = 4
QUICK = ("hmc", "sharded")
OTHERS = (
    *("decoder_scanned", "decoder_unrolled", "ensemble", "equinox_step"),
    *("linen_step", "nnx_step", "rnn", "unet_block"),
)


class Counts(NamedTuple):
    """Equations by primitive, instructions by opcode, and FLOPs of products."""

    equations: Counter[str]
    instructions: Counter[str]
    flops: list[float]


@functools.cache
def ran(*names: str) -> Any:
    directory = Path(tempfile.mkdtemp(prefix="jm-", dir="/tmp"))
    try:
        return run_preloaded(
            *("-m", "tests.programs.model_shapes", *names),
            run_dir=directory,
            env={"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"},
            cwd=ROOT,
        ).json()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def by_line(said: Any) -> dict[str, Counts]:
    """Return what is said of each line of the program; of no line as line 0."""
    found = defaultdict[str, Counts](lambda: Counts(Counter(), Counter(), []))
    for of in said["lines"]:
        is_here = of["file"] == str(PROGRAM)
        line = found[str(of["line"] if is_here else 0)]
        line.equations.update(of["equations"])
        line.instructions.update(of["instructions"])
        line.flops.append(of["flops"])
    return found


@pytest.mark.parametrize(
    ("name", "names"),
    [
        *((name, QUICK) for name in QUICK),
        *(pytest.param(name, OTHERS, marks=pytest.mark.exhaustive) for name in OTHERS),
    ],
)
def test_what_is_said_is_what_a_plain_count_finds(
    name: str, names: tuple[str, ...]
) -> None:
    """
    Equations by line and primitive, in all and of JAX's own jaxpr; instructions, and at
    least those whose line XLA states; FLOPs of products, of the whole batch and on all
    devices; bytes of constants and of what devices exchange; what XLA says itself,
    whose temporary memory is at most that of all lines.
    """
    found = ran(*names)[name]
    said, counted = found["said"], found["counted"]
    lines, program = by_line(said), said["program"]
    devices = DEVICES if name == "sharded" else 1

    # Instructions of libraries are at their own lines with JAX before 0.8.
    notes = [of for of in said["notes"] if not of.startswith("Tracing it took")]
    is_exact = not any("keeps one line" in note for note in notes)
    assert len(notes) == (not is_exact)
    assert said["equations"] == counted["equations"]
    assert said["instructions"] == sum(counted["opcodes"].values())
    for line in lines.keys() | counted["lines"].keys():
        of = counted["lines"].get(line, {"equations": {}, "flops": 0})
        assert dict(lines[line].equations) == of["equations"], line
        assert not is_exact or devices * sum(lines[line].flops) == of["flops"], line
    flops = sum(sum(of.flops) for of in lines.values())
    assert devices * flops == sum(of["flops"] for of in counted["lines"].values())
    for line, opcodes in counted["instructions"].items():
        assert line == "0" or lines[line].instructions >= Counter(opcodes), line
    opcodes = sum((of.instructions for of in lines.values()), Counter[str]())
    assert opcodes == counted["opcodes"]
    received = Counter[str]()
    for of in said["lines"]:
        for collective in of["collectives"]:
            received[collective["kind"]] += int(collective["bytes"])
    assert received == counted["collectives"]
    assert bool(received) == (name == "sharded")
    captured = program.get("captured") or {"bytes": 0}
    assert captured["bytes"] == counted["constants"]
    assert bool(counted["constants"]) == (name == "hmc")
    # XLA aligns arrays.
    held = sum(of["held_bytes"] for of in said["lines"])
    assert counted["temporary_bytes"] <= 1.05 * held + 1024
    for figure in ("flops", "temporary_bytes"):
        assert program["analysis"][figure] == counted[figure]
