"""
Runs the program that the first argument names, for ever, without looking at it.

It says ``ready`` when the mistake begins; `jaxmon run` observes it.
"""

from __future__ import annotations

import math
import sys

from tests.programs.verdicts import harness, healthy, serving, slow, wrong


if __name__ == "__main__":
    programs = {**vars(slow), **vars(wrong), **vars(serving), **vars(healthy)}
    harness.clock.seconds = math.inf
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    programs[sys.argv[1]]()
