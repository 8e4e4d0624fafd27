"""Which chip a TPU device of JAX is; devices with JAX's attributes stand for TPUs."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxmon.agent.devices import hardware as tpu
from jaxmon.agent.devices import part as identity
from tests.fakes.tpu.hosts import Host


UUID = "TPU-0000:00:{:02x}.0"


def devices(count: int, *, cores: int = 1, first: int = 0) -> list[SimpleNamespace]:
    """Devices of a later host of a slice if *first*, in no order."""
    found = [
        SimpleNamespace(
            platform="tpu",
            id=first + number,
            local_hardware_id=number,
            coords=(number // cores, 3, 0),
            core_on_chip=number % cores,
            client=SimpleNamespace(platform_version="libtpu"),
        )
        for number in range(count)
    ]
    return found[::-1]


def named(
    tmp_path: Path, generation: str, some: list[SimpleNamespace], **environ: str
) -> dict[int, str]:
    with Host(tmp_path, generation):
        found = tpu.chips_of(some, root=tmp_path, environ=environ)
    return {number: uuid for number, (uuid, _) in sorted(found.items())}


@pytest.mark.parametrize("first", [0, 16])
def test_chips_in_the_order_of_their_nodes(tmp_path: Path, first: int) -> None:
    """The first device of a host is its first chip, on later hosts as well."""
    assert named(tmp_path, "v5e", devices(8, first=first)) == {
        first + number: UUID.format(number + 4) for number in range(8)
    }


def test_cores_of_a_chip_share_its_name(tmp_path: Path) -> None:
    """Coordinates determine which cores belong together."""
    assert named(tmp_path, "7x", devices(8, cores=2)) == {
        number: UUID.format(number // 2 + 4) for number in range(8)
    }


@pytest.mark.parametrize("name", ["TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"])
def test_a_process_may_see_some_chips(tmp_path: Path, name: str) -> None:
    """A variable of libtpu says which."""
    found = named(tmp_path, "v4", devices(2), **{name: "2, 3"})
    assert found == {0: UUID.format(6), 1: UUID.format(7)}


@pytest.mark.parametrize(
    ("count", "environ"),
    [(2, {}), (4, {"TPU_VISIBLE_CHIPS": "0,9"}), (8, {})],
)
def test_what_does_not_add_up_has_no_name(tmp_path, count, environ):
    """A wrong join is worse than none."""
    assert named(tmp_path, "v4", devices(count), **environ) == {}


@pytest.mark.parametrize("lacks", ["coords", "local_hardware_id"])
def test_devices_of_unknown_places_have_no_name(tmp_path: Path, lacks: str) -> None:
    """A platform that calls itself TPU may be none."""
    some = devices(4)
    for one in some:
        setattr(one, lacks, None)
    assert named(tmp_path, "v4", some) == {}


def test_other_platforms_are_not_looked_up() -> None:
    """No file is read for a CPU."""
    assert identity.tpus([SimpleNamespace(platform="cpu")]) == {}
    assert identity.tpus(devices(4)) == {}, "no TPU where the tests run"
