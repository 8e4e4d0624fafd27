"""
A training loop that restores a checkpoint first, until stopped.

With the fault ``crash`` the checkpoint is broken: the program exits with an error, and
so does each that takes its place, before its first step.
"""

from __future__ import annotations

import jaxmon


agent = jaxmon.instrument()

from jaxmon_alerts.gameday.programs.pace import ProgramPace  # noqa: E402 - instrumented before anything else


def restore(pace: ProgramPace) -> None:
    """Restore the checkpoint, which is broken with the fault ``crash``."""
    if pace.suffers("crash"):
        msg = "the checkpoint is not that of this model"
        raise ValueError(msg)


def main() -> None:
    """Restore, then train."""
    pace = ProgramPace("fragile", __doc__, pause=0.1)
    print(f"metrics: {agent.url}", flush=True)
    restore(pace)
    # Only now: what crashes at once starts again at once.
    import jax

    step = jax.jit(lambda x: x * 0.99)
    x = step(1.0)
    print("ready", flush=True)
    for _ in jaxmon.steps(pace):
        restore(pace)
        x = step(x)
        pace.rest()


if __name__ == "__main__":
    main()
