"""
The in-process agent: the only part of jaxmon that imports JAX.

`hooks` attaches to JAX, `functions` keeps the statistics, `collect` converts them to
metric families, `agent` serves them, `current` holds this process's agent. Modules only
needed by a running agent are imported on demand.
"""

from jaxmon.agent.agent import Agent as Agent
from jaxmon.agent.start import instrument as instrument
from jaxmon.agent.start import uninstrument as uninstrument
