"""
Which chip a figure belongs to: lost ones, hidden ones, and those of several programs.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.tpu import shapes
from tests.fakes.tpu.hosts import Host, chip, failures, of, pci


pytest.importorskip("grpc")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Return a function that puts a host together."""
    with ExitStack() as stack:
        yield lambda generation=None: stack.enter_context(Host(tmp_path, generation))


def test_processes_that_each_count_from_zero_follow_their_ports(host):
    """Where numbers collide and the host is complete, the order of ports decides."""
    here = host("v4")
    for one in range(4):
        told = shapes.host("v4", cores=range(1))
        told["metrics"][shapes.MEMORY_USED] = [shapes.of_device(0, int=one + 10)]
        here.serve(told)
    page = here.poll()["page"]
    assert of(page, "jaxmon_accelerator_memory_used_bytes") == {
        chip(one): one + 10 for one in range(4)
    }


def test_what_cannot_be_placed_is_left_out(host: Callable[..., Host]) -> None:
    """Two processes that count from zero hold some two of four chips."""
    here = host("v4")
    for _ in range(2):
        here.serve(shapes.host("v4", cores=range(1)))
    state = here.poll()
    assert state["success"]
    assert of(state["page"], "jaxmon_accelerator_memory_used_bytes") == {}
    assert len(of(state["page"], "jaxmon_tpu_runtime_uptime_seconds")) == 2
    assert failures(state)['collector="tpu",reason="device_unplaced"'] > 0


@pytest.mark.parametrize("generation", ["v4", "7x"])
def test_hidden_bus_is_made_up_for(host: Callable[..., Host], generation: str) -> None:
    """Chips of a runtime whose hardware is not visible are numbered."""
    here = host()
    here.serve(shapes.host(generation))
    page = here.poll()["page"]
    assert of(page, "jaxmon_accelerator_info") == {}
    assert list(of(page, "jaxmon_tpu_duty_cycle_ratio")) == [
        f'uuid="TPU-{one}"' for one in range(4)
    ]


def test_lost_chip_is_down_and_keeps_its_place(host, tmp_path):
    """A chip that leaves the bus is up 0, and the others keep their figures."""
    here = host("v5e")
    here.serve(shapes.host("v5e"))
    before = of(here.poll()["page"], "jaxmon_accelerator_memory_used_bytes")
    lost = tmp_path / "sys/bus/pci/devices/0000:00:05.0"
    lost.rename(tmp_path / "lost")
    page = here.poll()["page"]
    assert of(page, "jaxmon_accelerator_up") == {
        chip(one): float(one != 1) for one in range(8)
    }
    assert of(page, "jaxmon_accelerator_memory_used_bytes") == before
    (tmp_path / "lost").rename(lost)
    assert set(of(here.poll()["page"], "jaxmon_accelerator_up").values()) == {1}


def test_program_without_the_lost_chip_has_its_own_chips(host, tmp_path):
    """Chips count from those left; what an earlier program counts is omitted."""
    here = host("v5e")
    runtime, _ = here.serve(shapes.host("v5e"))
    here.poll()
    (tmp_path / "sys/bus/pci/devices/0000:00:05.0").rename(tmp_path / "lost")
    runtime.tell(shapes.host("v5e", cores=range(7)))
    used = of(here.poll()["page"], "jaxmon_accelerator_memory_used_bytes")
    left = [one for one in range(8) if one != 1]
    assert used == {chip(one): (place + 1) << 28 for place, one in enumerate(left)}
    before = shapes.host("v5e")
    for name, figures in before["metrics"].items():
        if len(figures) == 8:
            before["metrics"][name] = [*figures[:1], *figures[2:]]
    runtime.tell(before)
    state = here.poll()
    assert of(state["page"], "jaxmon_accelerator_memory_used_bytes") == {}
    assert failures(state)['collector="tpu",reason="device_unplaced"'] > 0


def test_chip_that_appears_is_found(host: Callable[..., Host], tmp_path: Path) -> None:
    """Chips may come after the sidecar."""
    here = host()
    assert here.poll()["reason"] == "no_devices"
    pci(tmp_path, "0000:00:04.0", device="0x005e")
    assert len(of(here.poll()["page"], "jaxmon_accelerator_up")) == 1


def test_owner_is_told_where_it_is_visible(host, tmp_path):
    """The process that has a chip's node open, looked up twice a minute."""
    here = host("v5e")
    here.environ["TPU_RUNTIME_METRICS_PORTS"] = ""
    for pid, node in ((4321, "/dev/vfio/8"), (77, "/dev/null"), (4322, "/dev/vfio/8")):
        folder = tmp_path / f"proc/{pid}/fd"
        folder.mkdir(parents=True)
        (folder / "3").symlink_to(node)
    (tmp_path / "proc/99/fd").mkdir(parents=True)
    (tmp_path / "proc/99/fd").chmod(0)
    (tmp_path / "proc/self").mkdir()
    name = "jaxmon_tpu_owner_pid"
    assert of(here.poll()["page"], name) == {chip(1): 4321}
    (tmp_path / "proc/4321/fd/3").unlink()
    assert of(here.poll(after=10)["page"], name) == {chip(1): 4321}
    assert of(here.poll(after=30)["page"], name) == {chip(1): 4322}
