"""What the gate of a deployment says, against what the release compiles then."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import QUICK_COMPILES, ROOT, Result


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
    "ahead_of_time": """
        @jax.jit
        def predict(x):
            return jnp.tanh(x) @ x.T * 2

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
    import importlib, json, jaxmon
    from jax._src import compiler

    built, counts = [], {}
    for name in ("backend_compile", "backend_compile_and_load"):
        if original := getattr(compiler, name, None):
            def counting(*args, original=original, **options):
                built.append(str(args[1].operation.attributes["sym_name"]))
                return original(*args, **options)
            setattr(compiler, name, counting)
    for name in SERVICES:
        service, before = importlib.import_module(name), len(built)
        for size in SENT:
            service.serve(size)
        counts[name] = sum("predict" in of for of in built[before:])
    print(json.dumps(counts))
"""
EXPORT = """
    import importlib, sys, jaxmon
    agent = jaxmon.instrument(port=None, socket=False, sample_rate=0)
    sys.path.append(ROOT)
    from jaxmon.agent.warm.part import WarmStarts
    from tests.helpers import inside
    for name in SERVICES:
        service = importlib.import_module(name)
        for size in SENT:
            service.serve(size)
    page = inside.part(agent, WarmStarts).pages()["/debug/signatures"](None)
    print(page.body.decode())
"""
# The client wraps what it calls, and notes the sizes; some it has never sent before.
LIVE = """
    import importlib, json, sys, jaxmon
    agent = jaxmon.instrument(port=None, socket=False, sample_rate=0)
    sys.path.append(ROOT)
    [name] = SERVICES
    service = importlib.import_module(name)
    predict = service.predict
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
        service.serve(size)
    page = inside.part(agent, WarmStarts).pages()["/debug/signatures"](None)
    ready = inside.overview(agent)["ready"]
    print(json.dumps([noted, ready, json.loads(page.body)["functions"]]))
"""
SENT = (3, 7, 8, 15, 3, 7)
FLAGS = f"{QUICK_COMPILES['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
Recorded = dict[str, Any]


class Release:
    """Services in a directory, one of each of *settings*, and their cache."""

    def __init__(self, directory: Path, settings: Iterable[str]) -> None:
        self.directory = directory
        self.settings = tuple(settings)
        for setting in self.settings:
            text = dedent(SERVICE).replace("# setting", dedent(SETTINGS[setting]))
            self._source(setting).write_text(text)
        self._environ = {
            "JAX_COMPILATION_CACHE_DIR": str(directory / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "XLA_FLAGS": FLAGS,
        }

    def _source(self, setting: str) -> Path:
        return self.directory / f"{setting}.py"

    def change(self, before: str, after: str) -> None:
        """Replace a word in the sources."""
        for setting in self.settings:
            path = self._source(setting)
            path.write_text(path.read_text().replace(before, after))

    def run(self, *arguments: str, **environ: str) -> Result:
        return run_preloaded(
            *arguments,
            cwd=self.directory,
            env={**self._environ, **environ},
            optimised=True,
        )

    def _program(
        self, program: str, settings: Sequence[str], sent: Sequence[int] = SENT
    ) -> tuple[str, str]:
        text = dedent(program).replace("SENT", repr(tuple(sent)))
        text = text.replace("SERVICES", repr(tuple(settings)))
        return "-c", text.replace("ROOT", repr(str(ROOT)))

    def record(self) -> Recorded:
        """Return the functions, by setting, of a process that served without cache."""
        program = self._program(EXPORT, self.settings)
        found = self.run(*program, JAX_ENABLE_COMPILATION_CACHE="false").json()
        functions = {of["module"]: of for of in found["functions"]}
        assert functions.keys() == {*self.settings}
        return {setting: functions[setting] for setting in self.settings}

    def export(self, functions: list[Any]) -> None:
        document = {"schema": 1, "functions": functions}
        (self.directory / "signatures.json").write_text(json.dumps(document))

    def warmup(self) -> Result:
        return self.run("-m", "jaxmon", "warmup", "--signatures", "signatures.json")

    def gate(self, *options: str) -> Result:
        command = ("jaxmon", "warmup", "check", "--against", "signatures.json")
        return self.run("-m", *command, *options)

    def serve(self, *sent: int) -> Any:
        """Return what a client noted, and what jaxmon says of it."""
        program = self._program(LIVE, self.settings, sent)
        return self.run(*program, JAX_ENABLE_COMPILATION_CACHE="false").json()

    def compiles(self, settings: Sequence[str], *arguments: str) -> Any:
        """Return how many programs a client of these services has compiled of each."""
        return self.run(*self._program(CLIENT, settings), *arguments).json()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Release(tmp_path_factory.mktemp("recorded"), SETTINGS).record()


@pytest.mark.ground_truth
def test_the_gate_passes_exactly_what_compiles_nothing(
    tmp_path: Path, recorded: Recorded
) -> None:
    """It fails before the cache is filled and once the code differs, with names."""
    release = Release(tmp_path, SETTINGS)
    release.export(list(recorded.values()))
    counts = {setting: len(one["signatures"]) for setting, one in recorded.items()}
    count = sum(counts.values())
    empty = release.gate()
    release.warmup().ok()
    full = release.gate()
    served = release.compiles(release.settings)
    ahead = release.compiles(["ahead_of_time"], "ahead")
    release.change("tanh", "sin")
    changed = release.gate()
    compiled = release.compiles(release.settings)

    assert all(one["not_exportable"] == {} for one in recorded.values())
    assert (full.code, ahead) == (0, {"ahead_of_time": 0})
    assert served == dict.fromkeys(SETTINGS, 0)
    assert full.out.splitlines() == [f"0 compiled, {count} cached, 0 failed"]
    assert empty.code == changed.code == 1
    named = [
        f"{setting}.predict signature {number} (["
        for setting in SETTINGS
        for number in range(1, counts[setting] + 1)
    ]
    for result, others in ((empty, 0), (changed, count)):
        first, *failed = result.out.splitlines()
        assert first == f"0 compiled, 0 cached, {count} failed"
        for line, name in zip(failed, named, strict=True):
            assert line.startswith(name)
            assert f"; {others} of that name" in line
    assert compiled == counts


def test_what_the_file_could_not_describe_does_not_pass(
    tmp_path: Path, recorded: Recorded
) -> None:
    """Nor does a function that is missing."""
    release = Release(tmp_path, ["ahead_of_time"])
    function = {**recorded["ahead_of_time"]}
    function["signatures"] = function["signatures"][:1]
    release.export([{**function, "not_exportable": {"an argument is a Config": 2}}])
    release.warmup().ok()

    unknown = release.gate()
    release.change("predict", "forecast")
    missing = release.gate("--json")
    as_json = json.loads(missing.out)

    assert unknown.code == missing.code == 1
    assert unknown.out.splitlines()[1:] == [
        "ahead_of_time.predict: unchecked: 2 programs: an argument is a Config"
    ]
    assert [of["status"] for of in as_json].count("unchecked") == 1
    assert "there is no predict in ahead_of_time any more" in missing.out


@pytest.mark.ground_truth
@pytest.mark.parametrize("setting", SETTINGS)
def test_used_unused_and_missed_are_what_the_client_noted(
    tmp_path: Path, recorded: Recorded, setting: str
) -> None:
    """Of a service that is warm, whatever the sizes become on the way."""
    release = Release(tmp_path, [setting])
    release.export([recorded[setting]])
    before = [
        tuple(signature["args"][-1]["shape"])
        for signature in recorded[setting]["signatures"]
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
