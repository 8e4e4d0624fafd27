"""What the tests of the persistent cache run, and what they compare."""

import json
from pathlib import Path
from typing import Any

from jaxmon import catalog
from jaxmon.catalog import PERSISTENT_CACHE_OBSTACLES
from tests.helpers import processes
from tests.helpers.preloaded import run_preloaded


PROGRAM = processes.ROOT / "tests" / "programs" / "cached.py"
TWO_PROGRAMS = ["cached(ones(3))", "cached(ones(4))", "other(ones(3))"]
PORTABLE = {"jax_persistent_cache_enable_xla_caches": "none"}

# The packages of the tests do not bring it; JAX wants two methods of it.
FILELOCK = """
class FileLock:
    def __init__(self, path): pass
    def acquire(self, timeout=None): pass
    def release(self): pass
"""


class Books:
    """What JAX and the file system said, beside what jaxmon said."""

    def __init__(self, noted: dict[str, Any]) -> None:
        self.noted = noted
        self.events: dict[str, int] = noted["events"]
        self.warned: list[list[Any]] = noted["warned"]
        self.snapshot: dict[str, Any] = noted.get("snapshot", {})
        self.log: list[list[Any]] = noted.get("log", [])

    @property
    def hits(self) -> int:
        return self.events.get("cache_hits", 0)

    @property
    def stored(self) -> int:
        return self.events.get("cache_misses", 0)

    def obstacles(self) -> list[str]:
        """
        Return the reasons named, after asserting that page, snapshot and log agree.
        """
        metric = catalog.PERSISTENT_CACHE_OBSTACLE.name
        found = [one["reason"] for one in self.snapshot["obstacles"]]
        assert (
            self.noted["samples"].items()
            >= {
                f'{metric}{{reason="{reason}"}}': int(reason in found)
                for reason in PERSISTENT_CACHE_OBSTACLES
            }.items()
        )
        told = [details["reason"] for _, details in self.log if "reason" in details]
        assert sorted(told) == sorted(found)
        assert all(one["message"] and one["advice"] for one in self.obstacle_list())
        return found

    def obstacle_list(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.snapshot["obstacles"]
        return found

    def message(self, reason: str) -> str:
        (found,) = (o for o in self.obstacle_list() if o["reason"] == reason)
        return found["message"]


def options(
    directory: Path | str | None, *run: str, config: dict[str, Any] | None = None
) -> dict[str, Any]:
    """
    Return the environment that makes the program keep everything in *directory*, and
    run *run*.
    """
    return {
        "config": {
            "jax_compilation_cache_dir": None if directory is None else str(directory),
            "jax_persistent_cache_min_compile_time_secs": 0,
            "jax_persistent_cache_min_entry_size_bytes": -1,
            **(config or {}),
        },
        "run": run or TWO_PROGRAMS,
    }


def books_of(given: dict[str, Any], packages: Path | None = None) -> Books:
    """Run the program, *packages* before all others, and return its books."""
    arguments = str(PROGRAM), json.dumps(given)
    if packages is None:
        return Books(run_preloaded(*arguments).json())
    env = {"PYTHONPATH": str(packages)}
    return Books(processes.run_python(*arguments, env=env).json())


def run(
    directory: Path | str | None, *code: str, config: dict[str, Any] | None = None
) -> Books:
    return books_of(options(directory, *code, config=config))


def entries(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name.endswith("-cache")]
