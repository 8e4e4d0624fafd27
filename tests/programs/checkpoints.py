"""
A training loop that saves and restores with Orbax, and whose saves fail.

Prints what clocks of its own say next to what the agent exports, as JSON.
"""

import json
import resource
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import jaxmon
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.jaxlink import orbax
from jaxmon.agent.jaxlink.other_threads import Position
from tests.helpers.agents import SILENT, samples


DIRECTORY = Path(sys.argv[1])
SPANS = InMemorySpanExporter()
PROVIDER = TracerProvider(shutdown_on_exit=False)
PROVIDER.add_span_processor(SimpleSpanProcessor(SPANS))
trace.set_tracer_provider(PROVIDER)
AGENT = jaxmon.instrument(**{**SILENT, "traces": True})
SLOW_SECONDS = 0.3

truth: dict[str, Any] = {}
found: dict[str, Any] = {}


Handler: Any = ocp.StandardCheckpointHandler
_finalize = Handler.finalize


def finalize(self: Any, directory: Any) -> None:
    """Finish a save as slow storage does: asynchronous ones in the background."""
    began = time.perf_counter()
    if threading.current_thread() is threading.main_thread():
        frames = traceback.walk_stack(sys._getframe())
        stack = [Position(one.f_code, one.f_lasti, one.f_globals) for one, _ in frames]
        truth["activities"] = [orbax.activity_of(stack), orbax.activity_of(stack[-1:])]
    time.sleep(SLOW_SECONDS)
    _finalize(self, directory)
    truth["inside"] = truth.get("inside", 0.0) + time.perf_counter() - began


Handler.finalize = finalize


@contextmanager
def clock(name: str) -> Iterator[None]:
    """Add the time of the block to *name*."""
    began = time.perf_counter()
    try:
        yield
    finally:
        truth[name] = truth.get(name, 0.0) + time.perf_counter() - began


def look(name: str) -> None:
    """Keep what the agent exports now, as *name*."""
    wanted = ("jaxmon_checkpoint", "jaxmon_activity", "jaxmon_time", "jaxmon_hook")
    found[name] = {s: v for s, v in samples(AGENT).items() if s.startswith(wanted)}


def spans() -> list[dict[str, Any]]:
    """Return the spans so far, each with the name of its parent."""
    finished = SPANS.get_finished_spans()
    names = {one.context.span_id: one.name for one in finished if one.context}
    return [
        {
            "name": one.name,
            "parent": None if one.parent is None else names.get(one.parent.span_id),
            "seconds": ((one.end_time or 0) - (one.start_time or 0)) / 1e9,
            "attributes": dict(one.attributes or {}),
        }
        for one in finished
    ]


def saved(tree: Any) -> Any:
    return ocp.args.StandardSave(tree)


def save_blocking(tree: Any) -> None:
    """Save twice in steps, and restore."""
    checkpointer = ocp.Checkpointer(Handler())
    for number in jaxmon.steps(range(2)):
        with clock("sync"):
            checkpointer.save(DIRECTORY / f"sync-{number}", args=saved(tree))
    truth["sync_inside"] = truth["inside"]
    look("sync")
    with clock("restore"):
        restored = checkpointer.restore(
            DIRECTORY / "sync-0", args=ocp.args.StandardRestore(tree)
        )
    assert jnp.array_equal(restored["w"], tree["w"])
    look("restore")


def save_in_background(tree: Any) -> None:
    """Save three times with a manager, which has to wait for the save before."""
    manager = ocp.CheckpointManager(
        DIRECTORY / "managed", item_handlers=Handler(), options=_options()
    )
    with clock("async"):
        for number in jaxmon.steps(range(3)):
            with clock("async_blocking"):
                manager.save(number, args=saved(tree))
            look(f"async_{number}")
        with clock("async_drain"):
            manager.wait_until_finished()
    look("async")
    manager.close()


def _options() -> Any:
    return ocp.CheckpointManagerOptions(max_to_keep=2)


def fail(tree: Any) -> None:
    """Fail on the spot, in the background for want of space, and to restore."""
    sync, background = ocp.Checkpointer(Handler()), ocp.AsyncCheckpointer(Handler())
    for number in jaxmon.steps(range(2)):
        if number == 0:
            with suppress(ValueError):
                sync.save(DIRECTORY / "sync-0", args=saved(tree))
            truth["failed_at"] = time.perf_counter()
        else:
            truth["next_step"] = time.perf_counter() - truth["failed_at"]
            time.sleep(SLOW_SECONDS)
    look("failed")
    with suppress(FileNotFoundError):
        sync.restore(DIRECTORY / "none", args=ocp.args.StandardRestore(tree))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    sys.dont_write_bytecode = True  # Python would keep half of it
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        background.save(DIRECTORY / "full", args=saved(tree))
        background.wait_until_finished()
    except Exception as error:
        truth["error"] = repr(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    look("full")
    time.sleep(SLOW_SECONDS)
    look("later")


def save_elsewhere(tree: Any) -> None:
    """Save on another thread, and under the program's own mark."""
    thread = threading.Thread(
        target=ocp.Checkpointer(Handler()).save,
        args=(DIRECTORY / "thread",),
        kwargs={"args": saved(tree)},
    )
    thread.start()
    thread.join()
    look("thread")
    with jaxmon.activity("evaluate"):
        ocp.Checkpointer(Handler()).save(DIRECTORY / "marked", args=saved(tree))
    look("marked")


def save_with_flax(tree: Any) -> None:
    """Save and restore by Flax's own functions, which call Orbax."""
    try:
        checkpoints: Any = import_module("flax.training.checkpoints")
    except ImportError:  # it supports the newest JAX only
        return
    handler: Any = ocp.PyTreeCheckpointHandler
    original = handler.finalize

    def slow(self: Any, directory: Any) -> None:
        with clock("flax_inside"):
            time.sleep(SLOW_SECONDS)
            original(self, directory)

    handler.finalize = slow
    with clock("flax"):
        checkpoints.save_checkpoint(DIRECTORY / "flax", tree, step=1)
    handler.finalize = original
    look("flax_save")
    with clock("flax_restore"):
        restored = checkpoints.restore_checkpoint(DIRECTORY / "flax", tree)
    assert jnp.array_equal(restored["w"], tree["w"])
    look("flax")


def overview() -> Any:
    running = runtime_of(AGENT)
    assert running is not None
    return running.overview.whole()


def main() -> None:
    look("before")
    key = jax.random.key(0)
    tree = {"w": jax.random.normal(key, (600, 500)), "b": jnp.ones(7)}
    truth["bytes"] = sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
    save_blocking(tree)
    save_in_background(tree)
    fail(tree)
    save_elsewhere(tree)
    truth["overview"] = overview().get("checkpoints")
    save_with_flax(tree)
    truth["failures"] = sum(
        v for s, v in samples(AGENT).items() if s.startswith("jaxmon_internal_errors")
    )
    jaxmon.uninstrument()
    truth["spans"] = spans()
    print(json.dumps({"truth": truth, "found": found}))


main()
