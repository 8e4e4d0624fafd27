"""What a panel says that has no data: what there is none of."""

from __future__ import annotations

from collections.abc import Sequence


# By the beginning of a metric's name, the longest one first.
_SUBJECTS = {
    "accelerator": "No accelerators",
    "activity": "No activities",
    "agent": "No agents",
    "batch": "No batches",
    "collector": "No sidecar",
    "compile": "No compiles",
    "container": "No container",
    "data": "No loops",
    "device": "No devices",
    "device_allocations": "Not reported by the device",
    "device_memory": "Not reported by the device",
    "dispatch": "No sampled calls",
    "errors": "No errors",
    "execution": "No sampled calls",
    "float64_promotions": "None",
    "gpu": "No NVIDIA GPUs",
    "hook": "No agents",
    "host": "No sidecar",
    "host_syncs": "No transfers",
    "host_transfer": "No transfers",
    "items": "No items",
    "jax_warnings": "No warnings",
    "jit": "No calls",
    "leak": "None",
    "live": "No arrays",
    "nonfinite": "No sampled calls",
    "persistent_cache": "No persistent cache",
    "process": "No processes",
    "program": "No programs",
    "queue": "No queues",
    "recompiles": "No recompiles",
    "request": "No requests",
    "slowdown": "None",
    "step": "No loops",
    "time": "No loops",
    "tpu": "No TPUs",
    "uptime": "No processes",
    "value": "Nothing logged",
    "wall": "No agents",
}
_OTHERS = "No processes"


def text(metrics: Sequence[str], *, brief: bool = False) -> str:
    """
    Return what to show when nothing was found of *metrics*, the first that has a
    subject; recorded ones may also lack their rules, for which a *brief* text has no
    room.
    """
    named = [name.split(":")[1:2] or [name] for name in metrics]
    subjects = [_subject(name.removeprefix("jaxmon_")) for (name,) in named]
    found = next(filter(None, subjects), _OTHERS)
    recorded = any(":" in name for name in metrics)
    return f"{found}, or no recording rules" if recorded and not brief else found


def _subject(name: str) -> str:
    found = [beginning for beginning in _SUBJECTS if name.startswith(beginning)]
    return _SUBJECTS[max(found, key=len)] if found else ""
