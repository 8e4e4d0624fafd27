"""
The in-process agent: the only part of jaxmon that imports JAX.

`jaxlink` attaches to JAX, `functions` keeps the statistics, the parts listed in `parts`
export them, `serving` serves them, `agent` starts and stops that of this process.
Modules that only a running agent needs are imported on demand.
"""

from jaxmon.agent.agent import Agent as Agent
from jaxmon.agent.agent import instrument as instrument
from jaxmon.agent.agent import uninstrument as uninstrument
