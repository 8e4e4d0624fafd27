"""The place of this process in a cluster of JAX, without initialising or waiting."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxmon.agent.jaxlink import backends


class Cluster(NamedTuple):
    """
    A process of a cluster.

    Attributes:
        rank: its number, from 0.
        size: how many processes there are.
        coordinator: address of the coordinator, the same in all of them; empty if
            `jax.distributed` is not initialised, as may be on TPUs.
    """

    rank: int
    size: int
    coordinator: str


def cluster(jax: Any) -> Cluster | None:
    """
    Return the place of this process, `None` if it is not known yet.

    What `jax.distributed.initialize` was given, or found, is known as soon as all
    processes have joined; the backends, which also know it, may be initialised later.
    """
    state = jax._src.distributed.global_state  # noqa: SLF001 - JAX tells this nowhere else
    # It remains after the shutdown, which JAX does at exit.
    address = state.coordinator_address or ""
    if state.client is not None:
        return Cluster(int(state.process_id), int(state.num_processes), address)
    if backends.client(jax) is None:
        return None
    return Cluster(jax.process_index(), jax.process_count(), address)


def local_devices(jax: Any) -> int:
    """Return the number of devices of this process, 0 while that is unknown."""
    return 0 if backends.client(jax) is None else len(jax.local_devices())
