"""
Compare what the sidecar tells of NVIDIA GPUs with nvidia-smi of the same second.

    python tools/compare_smi.py [--rounds N]

For hosts with a GPU: needs a driver, nvidia-smi and nvidia-ml-py, and no rights. Each
round reads our figures, those of ``nvidia-smi -q -x``, and ours again; a figure agrees
if nvidia-smi's lies between ours, give or take what it rounds. Prints a table; the exit
code is 1 when a figure never agreed, or when there was next to nothing to compare.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET


sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, series
from jaxmon_exporter.collectors.nvidia.collector import NvidiaGpus
from tools import markdown


# Of a GPU: with fewer rows that both tell, something else is wrong.
FEWEST = 10
# From nvidia-smi's units to ours, and what it may have rounded off, in ours.
UNITS = {
    "MiB": (2**20, 2**20),
    "MHz": (1e6, 1e6),
    "%": (0.01, 0.05),
    "W": (1, 2),
    "C": (1, 1),
    "x": (1, 0),
    "": (1, 0),
}
WORDS = {
    "Enabled": 1,
    "Disabled": 0,
    "Active": 1,
    "Not Active": 0,
    "Yes": 1,
    "No": 0,
    "Not Started": 1,
    "In Progress": 2,
    "Completed": 3,
}
_NUMBER = re.compile(r"P?(-?[0-9.]+) ?(MiB|MHz|%|W|C|x|)")


@dataclass(frozen=True)
class Row:
    """
    A figure that both tell.

    Args:
        metric: ours.
        labels: values of its labels after ``uuid``.
        places: where nvidia-smi has it, by release; parts joined by ``+`` add up.
    """

    metric: Metric
    labels: tuple[str, ...]
    places: tuple[str, ...]

    @property
    def name(self) -> str:
        """What the table calls it."""
        return " ".join((self.metric.name, *self.labels))


def _row(metric: Metric, *places: str, of: tuple[str, ...] = ()) -> Row:
    return Row(metric, of, places)


def _sram(scope: str) -> tuple[Row, ...]:
    errors, there = catalog.GPU_SRAM_ECC_ERRORS, f"ecc_errors/{scope}/sram"
    both = f"{there}_uncorrectable_parity+{there}_uncorrectable_secded"
    return (
        _row(errors, f"{there}_correctable", of=("corrected", scope)),
        _row(errors, both, f"{there}_uncorrectable", of=("uncorrected", scope)),
    )


_EVENTS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clocks_setting",
)
_LINK = "pci/pci_gpu_link_info"
ROWS = (
    _row(catalog.ACCELERATOR_UTILIZATION_RATIO, "utilization/gpu_util"),
    _row(catalog.GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO, "utilization/memory_util"),
    *(
        _row(
            catalog.GPU_ENGINE_UTILIZATION_RATIO, f"utilization/{name}_util", of=(name,)
        )
        for name in catalog.ENGINES
    ),
    _row(catalog.ACCELERATOR_MEMORY_SIZE_BYTES, "fb_memory_usage/total"),
    _row(catalog.ACCELERATOR_MEMORY_USED_BYTES, "fb_memory_usage/used"),
    _row(catalog.ACCELERATOR_MEMORY_FREE_BYTES, "fb_memory_usage/free"),
    _row(catalog.ACCELERATOR_MEMORY_RESERVED_BYTES, "fb_memory_usage/reserved"),
    _row(catalog.GPU_BAR1_SIZE_BYTES, "bar1_memory_usage/total"),
    _row(catalog.GPU_BAR1_USED_BYTES, "bar1_memory_usage/used"),
    *(
        _row(
            catalog.ACCELERATOR_TEMPERATURE_CELSIUS,
            f"temperature/{sensor}_temp",
            of=(sensor,),
        )
        for sensor in ("gpu", "memory")
    ),
    _row(catalog.ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS, "temperature/gpu_temp_tlimit"),
    _row(
        catalog.GPU_POWER_INSTANT_WATTS,
        "gpu_power_readings/instant_power_draw",
    ),
    _row(
        catalog.ACCELERATOR_POWER_WATTS,
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
    ),
    _row(
        catalog.ACCELERATOR_POWER_LIMIT_WATTS,
        "gpu_power_readings/current_power_limit",
        "gpu_power_readings/enforced_power_limit",
        "power_readings/enforced_power_limit",
    ),
    *(
        _row(catalog.ACCELERATOR_CLOCK_HERTZ, f"clocks/{theirs}_clock", of=(ours,))
        for ours, theirs in zip(
            catalog.CLOCKS, ("graphics", "sm", "mem", "video"), strict=True
        )
    ),
    _row(catalog.GPU_PERFORMANCE_STATE, "performance_state"),
    _row(catalog.GPU_PERSISTENCE_MODE, "persistence_mode"),
    _row(catalog.GPU_MIG_MODE, "mig_mode/current_mig"),
    _row(catalog.GPU_PCIE_REPLAYS, "pci/replay_counter"),
    *(
        _row(metric, f"{_LINK}/{place.format(theirs)}", of=(ours,))
        for metric, place in (
            (catalog.GPU_PCIE_LINK_GENERATION, "pcie_gen/{}_link_gen"),
            (catalog.GPU_PCIE_LINK_WIDTH, "link_widths/{}_link_width"),
        )
        for ours, theirs in zip(catalog.LINK_KINDS, ("current", "max"), strict=True)
    ),
    *(
        _row(
            catalog.GPU_CLOCK_EVENT_ACTIVE,
            f"clocks_event_reasons/clocks_event_reason_{theirs}",
            f"clocks_throttle_reasons/clocks_throttle_reason_{theirs}",
            of=(ours,),
        )
        for ours, theirs in zip(catalog.CLOCK_EVENTS, _EVENTS, strict=True)
    ),
    *_sram("volatile"),
    *_sram("aggregate"),
    _row(
        catalog.GPU_REMAPPED_ROWS, "remapped_rows/remapped_row_corr", of=("corrected",)
    ),
    _row(
        catalog.GPU_REMAPPED_ROWS, "remapped_rows/remapped_row_unc", of=("uncorrected",)
    ),
    _row(catalog.GPU_ROW_REMAP_PENDING, "remapped_rows/remapped_row_pending"),
    _row(catalog.GPU_ROW_REMAP_FAILURE, "remapped_rows/remapped_row_failure"),
    _row(catalog.GPU_FABRIC_STATE, "fabric/state"),
)


@dataclass
class Verdict:
    """What came of one figure of one GPU in all rounds."""

    ours: float | None = None
    theirs: float | None = None
    agreed: int = 0
    compared: int = 0


def figure(text: str) -> tuple[float, float] | None:
    """
    Return value and tolerance of what nvidia-smi prints, `None` where it has none.
    """
    if text in WORDS:
        return WORDS[text], 0
    if (found := _NUMBER.fullmatch(text.strip())) is None:
        return None
    factor, tolerance = UNITS[found[2]]
    return float(found[1]) * factor, tolerance


def their_values(gpu: ET.Element, row: Row) -> tuple[float, float] | None:
    """Return value and tolerance of *row* in nvidia-smi's account of *gpu*."""
    for place in row.places:
        parts = [figure(gpu.findtext(one, "")) for one in place.split("+")]
        if all(part is not None for part in parts):
            known = [part for part in parts if part is not None]
            return sum(value for value, _ in known), max(most for _, most in known)
    return None


def compare(
    before: Mapping[str, float],
    log: ET.Element,
    after: Mapping[str, float],
    verdicts: dict[tuple[str, Row], Verdict],
) -> None:
    """Add to *verdicts* what one round shows."""
    for gpu in log.iter("gpu"):
        uuid = gpu.findtext("uuid", "")
        for row in ROWS:
            name = series(row.metric, uuid, *row.labels)
            ours = [page[name] for page in (before, after) if name in page]
            theirs = their_values(gpu, row)
            verdict = verdicts.setdefault((uuid, row), Verdict())
            verdict.ours = ours[-1] if ours else verdict.ours
            if theirs is None:
                continue
            verdict.theirs, tolerance = theirs
            if ours:
                verdict.compared += 1
                least, most = min(ours) - tolerance, max(ours) + tolerance
                verdict.agreed += least <= verdict.theirs <= most


def page(families: Iterable[Family]) -> dict[str, float]:
    """Return the series of *families*."""
    return {name: value for family in families for name, value in family.samples}


def table(verdicts: Mapping[tuple[str, Row], Verdict]) -> str:
    """Return a Markdown table."""
    rows = []
    for (uuid, row), one in verdicts.items():
        if one.ours is None and one.theirs is None:
            continue
        agreed = f"{one.agreed}/{one.compared}" if one.compared else ""
        cells = [
            "-" if value is None else f"{value:g}" for value in (one.ours, one.theirs)
        ]
        rows.append((uuid[:12], row.name, *cells, agreed))
    head = ("GPU", "figure", "here", "nvidia-smi", "agreed")
    return markdown.table(head, rows, "llrrr")


def complaints(verdicts: Mapping[tuple[str, Row], Verdict]) -> Iterator[str]:
    """Yield what is not as it should be."""
    compared: dict[str, int] = {}
    for (uuid, row), one in verdicts.items():
        compared[uuid] = compared.get(uuid, 0) + bool(one.compared)
        if one.compared and not one.agreed:
            yield f"{uuid}: {row.name} never agreed: {one.ours:g}, {one.theirs:g}"
    for uuid, count in compared.items():
        if count < FEWEST:
            yield f"{uuid}: only {count} figures could be compared"
    if not compared:
        yield "nvidia-smi tells of no GPU"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    # Everything is read at each poll: what hardly changes, too.
    collector = NvidiaGpus(interval=60)
    verdicts: dict[tuple[str, Row], Verdict] = {}
    for _ in range(rounds):
        before = page(collector.collect())
        done = subprocess.run(
            ["nvidia-smi", "-q", "-x"], capture_output=True, check=True
        )
        compare(
            before,
            ET.fromstring(done.stdout),  # noqa: S314 - of the driver's own program
            page(collector.collect()),
            verdicts,
        )
    collector.close()
    print(table(verdicts))
    found = list(complaints(verdicts))
    print("\n" + ("\n".join(found) or "all agree"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
