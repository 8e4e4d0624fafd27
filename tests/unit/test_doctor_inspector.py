"""Whether NCCL Inspector writes what the sidecar reads, by its variables."""

from pathlib import Path

import pytest

from jaxmon.preflight.doctor import Check, environment
from tests.helpers.processes import each


JOB = {"SLURM_NTASKS": "4"}
ON = {
    "NCCL_INSPECTOR_ENABLE": "1",
    "NCCL_PROFILER_PLUGIN": "inspector",
    "NCCL_INSPECTOR_DUMP_DIR": "/logs",
    "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "1000000",
}
INTERVAL = "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"
WRONG = {
    "no interval": ({INTERVAL: None}, "warning", "writes nothing"),
    "interval -1": ({INTERVAL: "-1"}, "warning", "writes nothing"),
    "interval 0": ({INTERVAL: "0"}, "warning", "before NCCL 2.30.3"),
    "interval of the README": ({INTERVAL: "500"}, "warning", "before NCCL 2.29.7"),
    "no thread": (
        {"NCCL_INSPECTOR_DUMP_THREAD_ENABLE": "0"},
        "warning",
        "writes nothing",
    ),
    "not loaded": ({"NCCL_PROFILER_PLUGIN": None}, "warning", "may not load"),
    "no such file": (
        {"NCCL_PROFILER_PLUGIN": "/none/libnccl-profiler-inspector.so"},
        "warning",
        "no such file",
    ),
    "for node_exporter": ({"NCCL_INSPECTOR_PROM_DUMP": "1"}, "note", "that format"),
    "no directory": (
        {"NCCL_INSPECTOR_DUMP_DIR": None},
        "note",
        "where the program starts",
    ),
}


def found(changed: dict[str, str | None], version: str = "2.28.9") -> list[Check]:
    """Return what is found of a job with these variables, besides RAS."""
    environ = {name: one for name, one in {**JOB, **changed}.items() if one is not None}
    every = environment.nccl(
        environ,
        {"nvidia-nccl-cu12": version}.get,
        processes=lambda _: [],
        listens=lambda _: False,
    )
    return [one for one in every if "RAS" not in one.text]


@each(WRONG)
def test_what_keeps_it_from_writing_is_said(changed, status, text):
    """Each by itself, with what to do."""
    [one] = found({**ON, **changed})
    assert one.status == status
    assert text in one.text
    assert one.advice


def test_one_that_is_set_up_is_fine(tmp_path: Path) -> None:
    """Its plugin is a name, or a file."""
    plugin = tmp_path / "libnccl-profiler-inspector.so"
    plugin.touch()
    for name in ("inspector", str(plugin)):
        [one] = found({**ON, "NCCL_PROFILER_PLUGIN": name})
        assert (one.status, one.advice) == ("ok", "")
        assert "/logs" in one.text


@pytest.mark.parametrize("value", [None, "", "0", "no"])
def test_one_that_is_off_is_fine(value: str | None) -> None:
    """It is named, and asks for nothing; whatever else is set."""
    [one] = found({**ON, "NCCL_INSPECTOR_ENABLE": value})
    assert (one.status, one.advice) == ("ok", "")
    assert "is off" in one.text


def test_without_nccl_nothing_is_said() -> None:
    """Nor of a job of one process, unless Inspector is enabled."""
    assert list(environment.nccl({}, lambda _: None, processes=lambda _: [])) == []
    [one] = environment.nccl(ON, lambda _: None, processes=lambda _: [])
    assert one.status == "ok"
