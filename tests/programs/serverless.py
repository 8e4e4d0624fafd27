"""
A serverless function and its platform: a handler that is called for each line.

Each line of the input is an event in JSON; the response is one line, too. The platform
(the test) freezes the process in between.
"""

import asyncio
import json
import sys
import threading
from typing import Any

import jax

import jaxmon
from jaxmon.threads import running


jaxmon.instrument()


@jax.jit  # type: ignore[untyped-decorator]
def double(x: Any) -> Any:
    return x * 2


class Context:
    """What AWS Lambda passes."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def get_remaining_time_in_millis(self) -> int:
        """Return what the platform has left of this invocation."""
        return self._milliseconds


def respond(event: dict[str, Any]) -> dict[str, Any]:
    if event.get("fail"):
        raise ValueError(event)
    import numpy as np

    result = double(np.ones(event["size"], np.float32))
    threads = sorted(
        [one.name for one in threading.enumerate()] + [one.name for one in running()]
    )
    response = {"sum": float(result.sum()), "threads": threads}
    return {**response, **event.get("response", {})}


@jaxmon.serverless(route="predict")
def handler(event: dict[str, Any], context: Context) -> dict[str, Any]:
    del context
    return respond(event)


@jaxmon.serverless(route="predict")
async def async_handler(event: dict[str, Any], context: Context) -> dict[str, Any]:
    del context
    await asyncio.sleep(0)
    return respond(event)


def main() -> None:
    for line in sys.stdin:
        event = json.loads(line)
        context = Context(event.get("left", 60_000))
        try:
            if sys.argv[1] == "async":
                response = asyncio.run(async_handler(event, context))
            else:
                response = handler(event, context)
        except ValueError as error:
            response = {"error": str(error)}
        sys.stdout.write(json.dumps(response) + "\n")
        sys.stdout.flush()


main()
