"""What is said of programs whose memory on the host grows, or only seems to."""

import re

import pytest

from tests.helpers.processes import ROOT, run_python, some


PROGRAM = ROOT / "tests" / "programs" / "host_growth.py"
GROWS = {
    "module_list": r"HISTORY \(list,",
    "cached_function": r"features \(lru_cache,",
    "unbounded_queue": r"load\.ready \(Queue,",
    "loader_that_ends": r"load\.ready \(Queue,",
}
HEALTHY = (
    *("bounded_queue", "dataset", "dataset_in_the_background", "filled_cache"),
    *("bounded_cache", "list_of_work", "replay_buffer", "noise"),
)


def findings_on(name: str) -> str:
    """Return the findings on a program at its exit, with single spaces."""
    ended = run_python(
        *("-m", "jaxmon", "run", "--no-tcp", "--report", str(PROGRAM), name), cwd=ROOT
    )
    assert ended.code == 0, ended.err
    return " ".join(ended.err.partition("FINDINGS")[2].split())


@pytest.mark.parametrize("name", some(sorted(GROWS, key="module_list".__ne__), 20))
def test_what_grows_is_named_with_its_items_and_line(name: str) -> None:
    """Within seconds, and first."""
    found = findings_on(name)

    assert re.search(
        rf"1\. (?:The memory|load\.ready).*{GROWS[name]} \d+ items\)", found
    )
    source = PROGRAM.read_text().splitlines()
    (number,) = [
        n for n, line in enumerate(source, 1) if re.search(rf"# adds: .*{name}", line)
    ]
    assert f"host_growth.py:{number}" in found
    assert ("maxsize of a few items" in found) == ("load.ready" in found)


@pytest.mark.parametrize("name", some(sorted(HEALTHY, key="bounded_cache".__ne__), 20))
def test_what_has_a_maximum_or_stays_is_not_accused(name: str) -> None:
    """Filled at once, in the background, up to a size, or freed again."""
    assert not re.search("on the host grew|holds about", findings_on(name))
