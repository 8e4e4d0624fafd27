"""
The in-process agent: the only part of jaxmon that imports JAX.

`hooks` attaches to JAX, `functions` holds the figures, `collect` folds them into
families, `agent` serves them, `current` keeps the one of this process. What only an
agent that runs needs is loaded with it, so that nothing goes wrong there without one.
"""

from jaxmon.agent.agent import Agent as Agent
from jaxmon.agent.start import instrument as instrument
from jaxmon.agent.start import uninstrument as uninstrument
