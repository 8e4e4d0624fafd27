"""What the gate of a deployment says, against what the release compiles then."""

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT, Result


# Each serves what the client sent, and counts the programs that XLA builds meanwhile.
SERVICE = """
    import json, sys
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    # setting
"""
SETTINGS = {
    "bucketed": """
        @jax.jit
        def predict(x):
            return jnp.tanh(x) @ x.T

        def serve(size):
            bucket = next(of for of in BUCKETS if of >= size)
            padded = np.zeros((bucket, 4), np.float32)
            padded[:size] = 1
            return np.asarray(predict(padded))[:size, :size].shape[0]

        BUCKETS = (4, 8, 16)
    """,
    "sharded": """
        @jax.jit
        def predict(weights, x):
            return jnp.tanh(x @ weights)

        mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))

        def placed(array, *spec):
            where = NamedSharding(mesh, PartitionSpec(*spec))
            return jax.device_put(array, where)

        def serve(size):
            weights = placed(np.ones((8, 16), np.float32), None, "model")
            whole = -(-size // 4) * 4
            return predict(weights, placed(np.ones((whole, 8), np.float32), "data"))
    """,
    "ahead of time": """
        @jax.jit
        def predict(x):
            return jnp.tanh(x) @ x.T

        compiled = {}

        def serve(size):
            x = np.ones((size, 4), np.float32)
            if "ahead" not in sys.argv:
                return predict(x)
            if size not in compiled:
                like = jax.ShapeDtypeStruct(x.shape, x.dtype)
                compiled[size] = predict.lower(like).compile()
            return compiled[size](x)
    """,
    "batched": """
        import jaxmon

        @jax.jit
        def predict(x):
            return jnp.tanh(x).sum(axis=-1)

        batch = []

        def serve(size):
            batch.append(size)
            if len(batch) < 3:
                return
            with jaxmon.batch("predict", size=len(batch), capacity=4):
                predict(np.ones((4, max(batch)), np.float32))
            batch.clear()
    """,
}
CLIENT = """
    import jaxmon
    from service import *
    from jax._src import compiler

    built = []
    for name in ("backend_compile", "backend_compile_and_load"):
        if original := getattr(compiler, name, None):
            def counting(*args, original=original, **options):
                built.append(str(args[1].operation.attributes["sym_name"]))
                return original(*args, **options)
            setattr(compiler, name, counting)
    for size in SENT:
        serve(size)
    print(json.dumps([name for name in built if "predict" in name]))
"""
EXPORT = """
    import sys, jaxmon
    agent = jaxmon.instrument(port=None, socket=False, sample_rate=0)
    sys.path.append(ROOT)
    from service import *
    from jaxmon.agent.warm.part import WarmStarts
    from tests.helpers import inside
    for size in SENT:
        serve(size)
    page = inside.part(agent, WarmStarts).pages()["/debug/signatures"](None)
    print(page.body.decode())
"""
# The client wraps what it calls, and notes the sizes; some it has never sent before.
LIVE = """
    import sys, jaxmon
    agent = jaxmon.instrument(port=None, socket=False, sample_rate=0)
    sys.path.append(ROOT)
    import service
    from service import *
    from jaxmon.agent.warm.part import WarmStarts
    from tests.helpers import inside
    jaxmon.warmup(predict, "signatures.json", uses=True)
    jaxmon.ready()
    noted = []
    def noting(*args):
        noted.append(list(args[-1].shape))
        return predict(*args)
    service.predict = noting
    for size in SENT:
        serve(size)
    page = inside.part(agent, WarmStarts).pages()["/debug/signatures"](None)
    ready = inside.overview(agent)["ready"]
    print(json.dumps([noted, ready, json.loads(page.body)["functions"]]))
"""
SENT = (3, 4, 7, 8, 12, 15, 3, 4, 7)
DEVICES = "--xla_force_host_platform_device_count=8"


class Release:
    """A service in a directory, and its cache."""

    def __init__(self, directory: Path, setting: str) -> None:
        self.directory = directory
        text = dedent(SERVICE).replace("# setting", dedent(SETTINGS[setting]))
        self.source = directory / "service.py"
        self.source.write_text(text)
        self._environ = {
            "JAX_COMPILATION_CACHE_DIR": str(directory / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            **({"XLA_FLAGS": DEVICES} if setting == "sharded" else {}),
        }

    def run(self, *arguments: str, **environ: str) -> Result:
        return run_preloaded(
            *arguments,
            cwd=self.directory,
            env={**self._environ, **environ},
            optimised=True,
        )

    def record(self) -> dict[str, Any]:
        """Export the signatures of a process that has served, without a cache."""
        text = (
            dedent(EXPORT).replace("SENT", repr(SENT)).replace("ROOT", repr(str(ROOT)))
        )
        found: dict[str, Any] = self.run(
            *("-c", text), JAX_ENABLE_COMPILATION_CACHE="false"
        ).json()
        (self.directory / "signatures.json").write_text(json.dumps(found))
        return found

    def warmup(self) -> Result:
        return self.run("-m", "jaxmon", "warmup", "--signatures", "signatures.json")

    def gate(self, *options: str) -> Result:
        command = ("jaxmon", "warmup", "check", "--against", "signatures.json")
        return self.run("-m", *command, *options)

    def serve(self, *sent: int) -> Any:
        """Return what a client noted, and what jaxmon says of it."""
        text = dedent(LIVE).replace("SENT", repr(sent)).replace("ROOT", repr(str(ROOT)))
        return self.run("-c", text, JAX_ENABLE_COMPILATION_CACHE="false").json()

    def compiles(self, *sent: int, ahead: bool = False) -> list[str]:
        """Return what the release compiles when the client sends these sizes."""
        text = dedent(CLIENT).replace("SENT", repr(sent))
        found: list[str] = self.run("-c", text, *(["ahead"] if ahead else [])).json()
        return found


@pytest.fixture
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Release:
    return Release(tmp_path, request.param)


@pytest.mark.ground_truth
@pytest.mark.parametrize("release", SETTINGS, indirect=True)
def test_the_gate_passes_exactly_what_compiles_nothing(release: Release) -> None:
    """It fails before the cache is filled and once the code differs, with names."""
    recorded = release.record()
    (predict,) = recorded["functions"]
    count = len(predict["signatures"])
    empty = release.gate()
    release.warmup().ok()
    full = release.gate()
    served = release.compiles(*SENT)
    ahead = release.compiles(*SENT, ahead=True)
    release.source.write_text(release.source.read_text().replace("tanh", "sin"))
    changed = release.gate()
    compiled = release.compiles(*SENT)

    assert predict["not_exportable"] == {}
    assert (full.code, served, ahead) == (0, [], [])
    assert full.out.splitlines() == [f"0 compiled, {count} cached, 0 failed"]
    assert empty.code == changed.code == 1
    for result, others in ((empty, 0), (changed, count)):
        first, *failed = result.out.splitlines()
        assert first == f"0 compiled, 0 cached, {count} failed"
        for number, line in enumerate(failed, 1):
            assert line.startswith(f"service.predict signature {number} ([")
            assert f"; {others} of that name" in line
    assert len(compiled) == count


@pytest.mark.parametrize("release", ["ahead of time"], indirect=True)
def test_what_the_file_could_not_describe_does_not_pass(release: Release) -> None:
    """Nor does a function that is missing."""
    found = release.record()
    found["functions"][0]["not_exportable"] = {"an argument is a Config": 2}
    (release.directory / "signatures.json").write_text(json.dumps(found))
    release.warmup().ok()

    unknown = release.gate()
    as_json = json.loads(release.gate("--json").out)
    renamed = release.source.read_text().replace("predict", "forecast")
    release.source.write_text(renamed)
    missing = release.gate()

    assert unknown.code == missing.code == 1
    assert unknown.out.splitlines()[1:] == [
        "service.predict: unchecked: 2 programs: an argument is a Config"
    ]
    assert [of["status"] for of in as_json].count("unchecked") == 1
    assert "there is no predict in service any more" in missing.out


@pytest.mark.ground_truth
@pytest.mark.parametrize("release", SETTINGS, indirect=True)
def test_used_unused_and_missed_are_what_the_client_noted(release: Release) -> None:
    """Of a service that is warm, whatever the sizes become on the way."""
    before = [
        tuple(signature["args"][-1]["shape"])
        for signature in release.record()["functions"][0]["signatures"]
    ]
    sent = (3, 8, 3, 3, 16, 16, 3, 3, 3)
    noted, ready, functions = release.serve(*sent)

    called = {tuple(shape) for shape in noted}
    (warmed,) = ready["warmed"]
    late = sum(of["count"] for of in ready["compiles"] if "predict" in of["name"])
    used = {
        tuple(signature["args"][-1]["shape"]): signature["used"]
        for function in functions
        for signature in function["signatures"]
    }
    assert warmed["calls"] == len(noted)
    assert warmed["signatures"] == len(before)
    assert warmed["used"] == len(called & {*before})
    assert warmed["unused"] == len({*before} - called)
    assert late == len(called - {*before})
    assert used == {
        **{shape: shape in called for shape in before},
        **dict.fromkeys(called - {*before}),
    }
