"""What devices exchange: what is in vain, what the advice wins, and what must be."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from jaxmon.facts.programs import CompiledProgram
from jaxmon.preflight.compiled.costs import ProgramCosts
from jaxmon.preflight.compiled.view import (
    ProcessPrograms,
    collectives_table,
    document,
)
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT


pytestmark = pytest.mark.ground_truth

PROGRAM = ROOT / "tests" / "programs" / "exchanges.py"
FAULTS = ("averaged", "mixed", "ordered", "summed")
MIB = 1 << 20
RECEIVED = {
    "averaged": 2 * MIB,
    "mixed": 2 * MIB,
    "ordered": 2 * MIB,
    "summed": 8 * MIB,
}
SMALL = 16 * 1024


@pytest.fixture(scope="module")
def ran() -> Any:
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = ["-m", "tests.programs.exchanges"]
    return run_preloaded(*command, env=devices, cwd=ROOT).json()


def costs_of(ran: Any, name: str) -> ProgramCosts:
    return ProgramCosts(CompiledProgram(function=name), ran["texts"][name], "")


def collectives(ran: Any, name: str) -> Iterator[tuple[str, bool | None, float]]:
    for line in costs_of(ran, name).lines.values():
        for found in line.collectives.values():
            yield found.kind, found.inserted, found.bytes


def test_only_what_could_be_spared_is_found(ran: Any) -> None:
    """
    With its line, and what a device gets: that many bytes, of the collectives of the
    program, the advice spares. What must be exchanged is no fault, and neither is what
    is asked for.
    """
    found = {of["subject"]: of for of in ran["findings"] if of["topic"] == "resharded"}
    lines = PROGRAM.read_text().splitlines()

    assert set(found) == {f"__main__.{name}" for name in FAULTS}
    assert set(ran["divided_anew"]) == set(FAULTS)
    # All of them were read.
    assert ran["devices"] == dict.fromkeys(ran["texts"], 4)
    for name in FAULTS:
        finding, size = found[f"__main__.{name}"], RECEIVED[name]
        [number] = [n for n, of in enumerate(lines, 1) if of.endswith(f"# {name}")]
        assert finding["where"].endswith(f"exchanges.py:{number}")
        assert f"gets {size // MIB} MiB" in finding["verdict"]
        spared = ran["received"][name] - ran["received"][f"{name}_mended"]
        assert spared >= size - SMALL


def test_which_programs_all_devices_compute_alike(ran: Any) -> None:
    """
    Those whose arguments are whole on each, as a batch that is not divided; not those
    that divide arguments or results, or go by the number of the device.
    """
    names = {"whole_batch", "forgotten", "with_key", "alike_by_hand"}
    assert set(ran["duplicated"]) == names


def test_collectives_are_those_of_the_program(ran: Any) -> None:
    """Their bytes are those of a plain reading of the HLO, and all have a kind."""
    for name, size in ran["received"].items():
        assert sum(of[2] for of in collectives(ran, name)) == size, name


def test_who_asked_for_collectives(ran: Any) -> None:
    """The partitioner inserts them, unless `shard_map` or a constraint has them."""
    by_hand = {(kind, inserted) for kind, inserted, _ in collectives(ran, "by_hand")}
    kinds = ("all-gather", "all-reduce", "all-to-all")

    assert by_hand == {(kind, False) for kind in kinds}
    asked = list(collectives(ran, "asked_for"))
    assert ("all-to-all", False, 2 * MIB) in asked
    for name in ("data_parallel", "fully_sharded", "tensor_parallel", *FAULTS):
        assert {inserted for _, inserted, _ in collectives(ran, name)} == {True}
    assert ("all-to-all", True, 2 * MIB) in list(collectives(ran, "mixed"))


def test_collectives_have_their_lines(ran: Any) -> None:
    """As a table: line, kind, who asked for it, number and bytes per call."""
    table = collectives_table(costs_of(ran, "mixed"))
    lines = PROGRAM.read_text().splitlines()
    [number] = [n for n, of in enumerate(lines, 1) if of.endswith("# mixed")]

    place, *rest = table.rows[0]
    assert place.endswith(f"exchanges.py:{number}")
    assert rest == ["all-to-all", "partitioner", "1", "2 MiB"]
    costs = costs_of(ran, "mixed")
    shown = json.loads(json.dumps(document(ProcessPrograms([costs.program], costs))))
    [first] = [of for of in shown["latest"]["lines"] if of["line"] == number]
    moved = {"kind": "all-to-all", "inserted": True, "number": 1, "bytes": 2 * MIB}
    assert first["collectives"] == [moved]
