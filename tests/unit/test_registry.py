"""The list of the sidecar's collectors."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jaxmon_exporter.collectors.registry import (
    LISTED,
    NAMES,
    CollectorEntry,
    DeviceCollector,
    make,
)
from jaxmon_exporter.options import SidecarOptions
from jaxmon_exporter.polling import Collector, CollectorUnavailable
from tests.helpers.processes import ROOT, run_python


HERE = Path("/nowhere")
ASKED_FOR: dict[str, object] = {"dcgm": "http://x/", "nccl_inspector": "/nowhere"}


def names(**chosen: object) -> tuple[list[str], list[str]]:
    options = SidecarOptions(run_dir=HERE, **chosen)  # type: ignore[arg-type]  # as named
    primary, secondary = make(options, print)
    return [one.name for one in primary], [one.name for one in secondary]


def test_collectors_have_the_names_that_they_are_listed_by() -> None:
    """A name of the list is that of the metrics and the log, and each is there once."""
    primary, secondary = names(**ASKED_FOR, demo=True)
    assert sorted([*primary, *secondary]) == sorted(one.name for one in LISTED)


def test_what_is_not_asked_for_is_not_made() -> None:
    """The fleet of `--demo`, files and a dcgm-exporter need an option, others none."""
    assert names() == ([name for name in NAMES if name not in ASKED_FOR], [])
    assert names(dcgm="http://x/") == (names()[0], ["dcgm"])
    assert set(names(nccl_inspector="x")[0]) - set(names()[0]) == {"nccl_inspector"}
    assert names(demo=True) == ([*names()[0], "demo"], [])


def test_devices_are_read_once_they_are_here() -> None:
    """Until then the collector has their reason, and is not made; then it is, once."""
    missing: list[tuple[str, str] | None] = [("no_devices", "none"), None]
    made: list[Collector] = []

    class Entry(CollectorEntry):
        def made(self, arguments: Mapping[str, Any]) -> Collector:
            made.append(super().made(arguments))
            return made[-1]

    place, arguments = "synthetic:Demo", {"interval": 1.0}
    entry = Entry("demo", place, lambda *_: arguments, lambda: missing.pop(0))
    here = DeviceCollector(entry, arguments)
    with pytest.raises(CollectorUnavailable, match="none") as failure:
        here.collect()
    assert (failure.value.reason, made) == ("no_devices", [])
    assert list(here.collect())
    assert list(here.collect())
    here.close()
    assert len(made) == 1


def test_devices_that_are_not_here_are_not_loaded() -> None:
    """What stands in for a collector has its interval and its deadline."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from jaxmon.host import tpus\n"
        "from jaxmon_exporter.collectors import nvidia, registry\n"
        "from jaxmon_exporter.options import SidecarOptions\n"
        "nvidia.driver_is_here = lambda: False\n"
        "tpus.find = lambda: []\n"
        "made, _ = registry.make(SidecarOptions(run_dir=Path('/nowhere')), print)\n"
        "found = [one.rpartition('collectors.')[2] for one in sys.modules]\n"
        "print([one for one in found if one.startswith(('nvidia.', 'tpu.'))])\n"
        "from jaxmon_exporter.collectors.nvidia.collector import NvidiaGpus\n"
        "from jaxmon_exporter.collectors.nvidia.gpm import Gpm\n"
        "from jaxmon_exporter.collectors.tpu.collector import Tpus\n"
        "here = {one.name: (one.interval, one.deadline) for one in made}\n"
        "for one in (NvidiaGpus(), Gpm(), Tpus()):\n"
        "    assert here[one.name] == (one.interval, one.deadline), one.name\n"
    )
    assert run_python("-c", script).ok().out == "[]\n"


def test_what_is_left_out_is_not_loaded() -> None:
    """A sidecar without collectors has none of their modules."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from jaxmon_exporter.collectors.registry import NAMES\n"
        "from jaxmon_exporter.options import SidecarOptions\n"
        "from jaxmon_exporter.service import Service\n"
        "Service(SidecarOptions(run_dir=Path('/nowhere'), disabled=NAMES))\n"
        "prefix = 'jaxmon_exporter.collectors.'\n"
        "print([one for one in sys.modules if one.startswith(prefix)])\n"
    )
    found = run_python("-c", script).ok().out
    assert found == "['jaxmon_exporter.collectors.registry']\n"


def test_collectors_are_in_the_picture() -> None:
    """The picture of the architecture names each collector that reads a source."""
    page = (ROOT / "docs/contributors/architecture.md").read_text()
    picture = page.split("```")[1]
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", picture)] == []
