"""
What advice promises, and what it wins: ``python -m tests.advice [--write] [NAME...]``.

Each loop of `tests.programs.advised` runs under jaxmon for some seconds, and then as
many steps of it with the advice of its finding applied. ``--write`` makes the table in
docs/advice.md of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, NamedTuple

from tests.helpers.processes import ROOT, run_python


PAGE = ROOT / "docs" / "advice.md"
SECONDS = 8.0
LOOPS = {
    "eager": ("eager", "A function of 60 operations is called within `jax.jit`."),
    "host": ("host", "Parsing is done each 20th step."),
    "data_wait": ("data_wait", "A thread loads the next batches."),
    "copies": ("copies", "What does not change is copied once."),
    "lists": ("copies", "NumPy makes an array of the list first."),
    "blocked": ("blocked", "The disk is waited for each tenth step."),
    "garbage": ("garbage", "The loop no longer calls `gc.collect`."),
    "interpreter": ("interpreter", "The other thread works on whole arrays, in C."),
}
"""By loop: the topic of its finding, and what its twin does."""

_HEAD = """\
# What advice wins

Each row is a loop that loses time. jaxmon looks at it for eight seconds; *promised*
is what its finding says could be won back. Then some of its steps, and the same steps
with the advice applied, run by turns; *won* is how much sooner all would have been
done, by the program's own clock and the quickest turn of each. More than promised is
won where the advice also saves what others did meanwhile. Advice that wins less than
half of what it promises is removed.

On a CPU, host and device have the same processors, so that nothing is promised for
doing both at once: that reads (`fetch`) keep the host from working ahead is a finding
only beside an accelerator, and has no row.

`python -m tests.advice --write` measures, and writes this table.

| Finding | What is changed | Promised | Won |
| --- | --- | --- | --- |
"""


class Win(NamedTuple):
    """Seconds that the finding on a loop promises, and that its twin wins."""

    name: str
    promised: float
    won: float

    @property
    def row(self) -> str:
        """A row of the table."""
        topic, change = LOOPS[self.name]
        return f"| `{topic}` | {change} | {self.promised:.1f} s | {self.won:.1f} s |\n"


def measure(name: str) -> Win:
    """Run the loop *name* and its twin."""
    command = ["-m", "tests.programs.advised", name, str(SECONDS)]
    ended = run_python(*command, cwd=ROOT, seconds=300).ok()
    found: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
    of_it = (one for one in found["findings"] if one["topic"] == LOOPS[name][0])
    promised = next((one["seconds"] for one in of_it), 0.0)
    return Win(name, promised, found["won"])


def main() -> None:
    """Print the table, or write it."""
    options = argparse.ArgumentParser(prog="python -m tests.advice")
    options.add_argument("--write", action="store_true", help="write docs/advice.md")
    options.add_argument("names", nargs="*", help="of loops; else all")
    given = options.parse_args()
    text = _HEAD
    for name in given.names or LOOPS:
        text += (win := measure(name)).row
        sys.stdout.write(win.row)
        sys.stdout.flush()
    if given.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
