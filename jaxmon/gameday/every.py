"""All scenarios, in the order in which they are listed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from jaxmon.gameday.hardware import HARDWARE
from jaxmon.gameday.scenario import Scenario
from jaxmon.gameday.serving import SERVING
from jaxmon.gameday.training import TRAINING


SCENARIOS = (*SERVING, *TRAINING, *HARDWARE)

BY_NAME: Mapping[str, Scenario] = MappingProxyType({one.name: one for one in SCENARIOS})
