"""
What users write, checked by mypy as strictly as theirs may be.

A line that must be rejected carries an ignore; mypy reports an ignore that is not
needed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from queue import Queue

import jax.numpy

import jaxmon
from jaxmon.asgi import Application, Middleware, Receive, Scope, Send


agent: jaxmon.Agent = jaxmon.instrument()
jaxmon.instrument(port=0, host="127.0.0.1", max_functions=50)
jaxmon.instrument(port=None, socket=False, calls=False, memory_interval=0)
url: str | None = agent.url
before = agent.memory()
for line in agent.memory().growth_since(before):
    where: tuple[str, int] = line.file, line.line
    grown: int = line.bytes
agent.memory() - before  # type: ignore[operator]
jaxmon.uninstrument()
version: str = jaxmon.__version__

try:
    jaxmon.instrument(run_dir="/run/jaxmon")
except jaxmon.SettingsError as error:
    caught: jaxmon.JaxmonError = error
    value_error: ValueError = error

for number in jaxmon.steps([1, 2], loop="train", items=32, item="token"):
    doubled: int = number * 2
for text in jaxmon.steps({"a": 1}, items=len, start=10):
    length: int = len(text)
jaxmon.steps(3)  # type: ignore[arg-type]
jaxmon.steps([1], "train")  # type: ignore[call-arg]

with jaxmon.activity("checkpoint"):
    pass
with jaxmon.request("predict") as request:
    request.outcome = "client_error"
    cold: bool = request.cold
    request.outcome = "fine"  # type: ignore[assignment]

waiting: Queue[str] = Queue()
named: jaxmon.Queue = jaxmon.queue("decode", waiting.qsize)
named.close()
jaxmon.queue("prefill").set(3)
jaxmon.log_values({"loss": 0.5, "steps": 3})
jaxmon.log_values({"loss": jax.numpy.zeros(())}, step=5)
jaxmon.log_values({"loss": "0.5"})  # type: ignore[dict-item]
jaxmon.log_values({"loss": 0.5}, 5)  # type: ignore[call-arg]
jaxmon.queue("decode", waiting)  # type: ignore[arg-type]
jaxmon.batch("predict", size=5, capacity=8)
jaxmon.batch("predict", 5, 8)  # type: ignore[call-arg]


@jaxmon.request("predict")
@jaxmon.activity("predict")
def predict(x: float) -> str:
    """Keep its signature."""
    return str(x)


@jaxmon.request("predict")
async def predict_later(x: float) -> str:
    """Keep its signature."""
    async with jaxmon.request("inner"):
        return predict(x)


with jaxmon.budget(compiles=1, recompiles=0, function=predict) as spent:
    compiled: int = spent.compiles
    moved: int | None = spent.transfers
jaxmon.budget(compiles="1")  # type: ignore[arg-type]
jaxmon.budget(1)  # type: ignore[call-arg]


@jaxmon.budget(live_bytes_growth=0, internal=True)
def measured(x: float) -> str:
    """Keep its signature."""
    return str(x)


measured("1.0")  # type: ignore[arg-type]
exceeded: AssertionError = jaxmon.BudgetExceeded("compiles: 2 (allowed: 1)")

answer: str = predict(1.0)
predict("1.0")  # type: ignore[arg-type]
later: Awaitable[str] = predict_later(1.0)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Do nothing."""


wrapped: Application = Middleware(application)

check: jaxmon.DeterminismCheck = jaxmon.check_determinism(predict, 1.0, runs=3)
same: bool = check.identical
for deviation in check.deviations:
    worst: float = deviation.max_relative
jaxmon.check_determinism()  # type: ignore[call-arg]
gradients: jaxmon.GradientCheck = jaxmon.check_gradients(predict, (1.0,), modes=["rev"])
passed: bool = gradients.passed
jaxmon.check_gradients(predict)  # type: ignore[call-arg]

jaxmon.log_to(print, every=10, start=200)
jaxmon.log_to(print, evry=10)  # type: ignore[call-arg]

jaxmon.instrument(port="9466")  # type: ignore[arg-type]
jaxmon.instrument(prot=9466)  # type: ignore[call-arg]
jaxmon.nonsense  # type: ignore[attr-defined]
