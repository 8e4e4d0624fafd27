"""
The page that each kind of GPU should make, as it was reviewed.

``python -m tests.fakes.nvml.pages`` rewrites them; read what changed.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fakes.nvml.build import build
from tests.fakes.nvml.gpus import fake_gpus


REVIEWED = Path(__file__).with_name("reviewed")
# Profile, number of devices, and whether the driver lacks newer functions.
PROFILES = {
    "h100": (8, False),
    "h200": (2, False),
    "b200": (1, False),
    "a100": (2, False),
    "t4": (1, False),
    "v100": (1, True),
}
COLLECTOR = "nvml.NvidiaGpus(sysfs=Path({!r}), processes=2)"
PROCESSES = ("process 0 4001 3000", "process 0 4002 2000", "process 0 4003 700")


def page_of(profile: str, library: Path, directory: Path) -> str:
    """Return the page of a collector that polled the GPUs of *profile* twice."""
    count, _ = PROFILES[profile]
    for bus, node in (("0000:1a:00.0", 1), ("0000:1b:00.0", -1)):
        place = directory / "sys/bus/pci/devices" / bus
        place.mkdir(parents=True)
        (place / "numa_node").write_text(f"{node}\n")
    collector = COLLECTOR.format(str(directory / "sys"))
    with fake_gpus(library, directory, collector=collector) as start:
        gpus = start(count, *PROCESSES, profile=profile)
        gpus.poll()
        gpus.poll()
        text: str = gpus.tell("text")["text"]
        return text


def main() -> None:
    REVIEWED.mkdir(exist_ok=True)
    for profile, (_, old) in PROFILES.items():
        with TemporaryDirectory() as name:
            library, directory = Path(name) / "library", Path(name) / "run"
            library.mkdir()
            directory.mkdir()
            build(library, old=old)
            written = page_of(profile, library, directory)
        (REVIEWED / f"{profile}.txt").write_text(written)


if __name__ == "__main__":
    main()
