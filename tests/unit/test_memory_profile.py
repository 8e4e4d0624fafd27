"""Memory by line, and growth between two moments."""

import json

from jaxmon.agent.memory.profile import AllocationLine, MemoryProfile


def line(number: int, size: int, arrays: int = 1, device: str = "0") -> AllocationLine:
    """Return what a line of one file holds."""
    return AllocationLine("a.py", number, "f", device, "buffer", size, arrays)


CODE = AllocationLine("a.py", 1, "f", "", "executable", 500, 2)


def test_growth_names_what_came_and_what_went():
    """Differences by line and device, most growth first; what stayed is left out."""
    earlier = MemoryProfile(1.0, (line(1, 100), line(2, 50), line(3, 7)))
    later = MemoryProfile(
        2.0, (line(1, 160, 3), line(2, 50), line(4, 200), line(1, 9, device="1"))
    )

    assert later.growth_since(earlier) == (
        line(4, 200),
        line(1, 60, 2),
        line(1, 9, device="1"),
        line(3, -7, -1),
    )
    assert later.growth_since(later) == ()


def test_rows_add_up_devices():
    """A line that holds shards on two devices is one row, apart from its programs."""
    profile = MemoryProfile(1.0, (line(1, 300), line(1, 300, device="1"), CODE))
    rows = profile.rows()

    assert [(row["kind"], row["bytes"], row["arrays"]) for row in rows] == [
        ("buffer", 600, 2),
        ("executable", 500, 2),
    ]
    assert profile.rows(1) == rows[:1]
    assert json.loads(json.dumps(rows)) == rows


def test_text_is_a_table():
    """A person sees totals, then lines with their bytes, but none without."""
    unknown = AllocationLine("", 0, "", "0", "buffer", 1, 1)
    empty = AllocationLine("a.py", 2, "f", "", "executable", 0, 2)
    text = str(MemoryProfile(1.0, (line(12, 3_000_000, 4), CODE, unknown, empty)))

    assert text.splitlines() == [
        "3,000,001 bytes in 5 live arrays",
        "       3,000,000         4 arrays   a.py:12 (f)",
        "             500         2 programs a.py:1 (f)",
        "               1         1 arrays   unknown",
    ]
