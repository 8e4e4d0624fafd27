"""The list of the sidecar's collectors."""

from __future__ import annotations

import re
from pathlib import Path

from jaxmon_exporter.collectors.registry import LISTED, NAMES, make
from jaxmon_exporter.options import SidecarOptions
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


def test_what_is_left_out_is_not_made() -> None:
    """Each collector can be disabled, also one that an option asks for."""
    for name in NAMES:
        found = names(**ASKED_FOR, disabled=(name,))
        assert name not in [*found[0], *found[1]]
    assert names(**ASKED_FOR, disabled=NAMES) == ([], [])


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
    page = (ROOT / "docs/architecture.md").read_text()
    picture = page.split("```")[1]
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", picture)] == []
