"""
What users write, checked by mypy as strictly as theirs may be.

A line that must be rejected carries an ignore; mypy reports an ignore that is not
needed.
"""

from __future__ import annotations

import jaxmon


agent: jaxmon.Agent = jaxmon.instrument()
jaxmon.instrument(port=0, host="127.0.0.1", max_functions=50)
jaxmon.instrument(port=None, socket=False, calls=False, memory_interval=0)
url: str | None = agent.url
jaxmon.uninstrument()
version: str = jaxmon.__version__

try:
    jaxmon.instrument(run_dir="/run/jaxmon")
except jaxmon.SettingsError as error:
    caught: jaxmon.JaxmonError = error
    value_error: ValueError = error

jaxmon.instrument(port="9466")  # type: ignore[arg-type]
jaxmon.instrument(prot=9466)  # type: ignore[call-arg]
jaxmon.nonsense  # type: ignore[attr-defined]
