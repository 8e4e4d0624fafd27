"""Whether processes of a job can find in the persistent cache what others put there."""

from __future__ import annotations

from typing import Any

from jaxmon import interrupts


def key_part(jax: Any) -> str:
    """
    Return the part of JAX's keys that is about all devices, ``""`` if that is unknown.

    For programs that run on all of them it should be the same in all processes. Where
    it is not, as in 0.10.2 and 0.12.0, no process finds what another one has stored.
    """
    client = jax._src.lib.xla_client  # noqa: SLF001 - what JAX makes its keys with
    try:
        topology = client.get_topology_for_devices(jax.devices())
        return f"{topology.fingerprint():x}"
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        interrupts.pass_on(error)
        return ""  # JAX has other keys then
