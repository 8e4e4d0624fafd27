"""
The faults of a game day: what breaks, and which alert must report it.

Definitions only; `jaxmon.demo` has the programs that break, and ``jaxmon gameday`` runs
them. ``jaxmon demo --break`` offers those that need no process of their own.
"""

from __future__ import annotations

from jaxmon.gameday.every import BY_NAME as BY_NAME
from jaxmon.gameday.every import SCENARIOS as SCENARIOS
from jaxmon.gameday.scenario import Scenario as Scenario
