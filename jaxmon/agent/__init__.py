"""
The in-process agent: the only part of jaxmon that imports JAX.

`hooks` attaches to JAX, `functions` holds the figures, `collect` folds them into
families, `agent` serves them.
"""

from jaxmon.agent.agent import Agent as Agent
from jaxmon.agent.agent import instrument as instrument
from jaxmon.agent.agent import uninstrument as uninstrument
