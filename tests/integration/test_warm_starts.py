"""Signatures of one process, compiled ahead by another, loaded by a third."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
import yaml

from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import ROOT, Result, clean_environ


SERVICE = """
    import collections
    from functools import partial
    import equinox as eqx, jax, jax.numpy as jnp

    State = collections.namedtuple("State", "w b")

    @jax.jit
    def forward(state, x, scale):
        return jnp.tanh(x @ state.w + state.b) * scale

    @partial(jax.jit, static_argnames=("kind", "dims"))
    def reduce(batch, kind, dims=(0,)):
        return getattr(jnp, kind)(batch["x"], axis=dims), batch["extra"]

    def _decode(cache, key):
        return [one * 2 for one in cache], jax.random.uniform(key)

    decode = jax.jit(_decode, donate_argnums=0)

    class Model(eqx.Module):
        layers: list[eqx.nn.Linear]
        act: object = eqx.field(static=True)

    @jax.jit
    def predict(model, x, by):
        for layer in model.layers:
            x = model.act(layer(x))
        return x * by

    def make():
        @jax.jit
        def inner(x):
            return x + 1
        return inner

    inner = make()
"""

# One request: every kind of leaf and container that a file has.
REQUEST = """
    import numpy as np, jax, service

    def requests():
        arrays = np.ones((16, 4), "f4"), np.ones(4, "f4")
        state = service.State(*jax.device_put(arrays))
        key = jax.random.key(3)
        here = jax.devices()[0]
        layers = [service.eqx.nn.Linear(2, 2, key=one) for one in (key, key)]
        model = service.Model(layers, jax.nn.relu)
        def serve():
            for n in (2, 5):
                service.forward(state, np.ones((n, 16), "f4"), 0.5)
            service.forward(state, jax.device_put(np.ones((2, 16), "f4"), here), 1)
            batch = {"x": np.ones((3, 2), "f4"), "extra": None, 'ä"': {1: 2.0, 2: []}}
            service.reduce(batch, kind="sum")
            service.reduce(batch, "max", dims=(0, 1))
            service.decode([jax.device_put(np.ones(3, "f4")), np.ones(2, "i4")], key)
            service.predict(model, np.ones(2, "f4"), np.float32(0.5))
        return serve

    BUILT, EVENTS = [], []
"""
COUNT = """
    from jax._src import compiler
    build = compiler.backend_compile_and_load if hasattr(
        compiler, "backend_compile_and_load") else compiler.backend_compile
    def counting(*args, **kwargs):
        BUILT.append(1)
        return build(*args, **kwargs)
    setattr(compiler, build.__name__, counting)
    jax.monitoring.register_event_listener(lambda event, **_: EVENTS.append(event))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a service, and signatures recorded while it served."""
    pytest.importorskip("equinox")  # whose modules are recorded, too
    directory = tmp_path_factory.mktemp("warm")
    (directory / "service.py").write_text(dedent(SERVICE))
    (directory / "requests_.py").write_text(dedent(REQUEST))
    program = """
        import subprocess, sys, jaxmon
        jaxmon.instrument(port=None, sample_rate=0)
        from requests_ import requests, service
        requests()()
        service.inner(1.0)
        command = [sys.executable, "-m", "jaxmon", "signatures", "export",
                   "--out", "signatures.json"]
        subprocess.run(command, check=True)
    """
    run_dir = tmp_path_factory.mktemp("r")
    python(directory, program, JAXMON_RUN_DIR=str(run_dir)).ok()
    return directory


class Filled(NamedTuple):
    """A cache that the command has filled, from which file, and what it printed."""

    file: Path
    cache: Path
    result: Result

    @property
    def environ(self) -> dict[str, str]:
        return {"JAX_COMPILATION_CACHE_DIR": str(self.cache)}


@pytest.fixture(scope="module")
def filled(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    directory = tmp_path_factory.mktemp("filled")
    file, cache = importable(place, directory / "s.json"), directory / "cache"
    environ = {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    arguments = ("--signatures", str(file), "--jobs", "2")
    return Filled(file, cache, warmup(place, *arguments, **environ).ok())


def python(directory: Path, program: str, **environ: str) -> Result:
    arguments = ("-c", dedent(program))
    return run_preloaded(*arguments, cwd=directory, env=environ, optimised=True)


def warmup(directory: Path, *arguments: str, **environ: str) -> Result:
    command = ("-m", "jaxmon", "warmup", *arguments)
    return run_preloaded(*command, cwd=directory, env=environ, optimised=True)


def importable(place: Path, file: Path) -> Path:
    """Write the signatures that can be imported, one of them twice."""
    document = recorded(place)
    document["functions"] = [
        one for one in document["functions"] if "<" not in one["qualname"]
    ]
    signatures = document["functions"][0]["signatures"]
    signatures.append(signatures[0])
    file.write_text(json.dumps(document))
    return file


def recorded(place: Path) -> Any:
    return json.loads((place / "signatures.json").read_text())


def entries(cache: Path) -> int:
    return sum(one.name.endswith("-cache") for one in cache.iterdir())


def pipeline_step(job: str) -> str:
    """Return the command that *job* of the example of a pipeline runs."""
    found = yaml.safe_load((ROOT / "examples" / "ci" / "warm-start.yaml").read_text())
    command: str = found["jobs"][job]["steps"][-1]["run"]
    return command


@pytest.mark.ground_truth
def test_the_file_has_what_was_compiled(place: Path) -> None:
    """Each call that compiled is one signature, with its arguments as passed."""
    functions = {one["function"]: one for one in recorded(place)["functions"]}

    counts = {name: len(one["signatures"]) for name, one in functions.items()}
    assert counts == {
        "service.forward": 3,
        "service.reduce": 2,
        "service._decode": 1,
        "service.predict": 1,
        "service.make.<locals>.inner": 1,
    }
    sizes = [
        one["args"][1]["shape"] for one in functions["service.forward"]["signatures"]
    ]
    assert sizes == [[2, 16], [5, 16], [2, 16]]
    assert functions["service.forward"]["parameters"] == ["state", "x", "scale"]
    assert functions["service._decode"]["options"]
    kwargs = functions["service.reduce"]["signatures"][0]["kwargs"]
    assert kwargs == {"kind": {"static": "sum"}}


@pytest.mark.ground_truth
def test_a_third_process_compiles_nothing(place: Path, filled: Filled) -> None:
    """After the command, a fresh process serves its first requests from the cache."""
    environ = filled.environ
    again = warmup(place, "--signatures", str(filled.file), **environ).ok()
    program = (
        "from requests_ import *\nserve = requests()\n"
        f"{dedent(COUNT)}\nserve()\n"
        "import json; print(json.dumps([len(BUILT), EVENTS]))"
    )
    before = entries(filled.cache)
    built, events = python(place, program, **environ).json()

    assert filled.result.out.splitlines()[0] == "7 compiled, 1 cached, 0 failed"
    assert again.out.splitlines()[0] == "0 compiled, 8 cached, 0 failed"
    assert built == 0
    assert events.count("/jax/compilation_cache/cache_hits") == 7
    assert events.count("/jax/compilation_cache/compile_requests_use_cache") == 7
    assert before == 7


@pytest.mark.ground_truth
def test_in_the_process_no_call_misses(place: Path) -> None:
    """After `jaxmon.warmup`, the first requests are hits, and /-/ready responds 200."""
    program = f"""
        import json, sys, urllib.request, urllib.error, jaxmon
        sys.path.append({str(ROOT)!r})
        agent = jaxmon.instrument(port=0, socket=False, expect_warmup=True)
        from requests_ import *
        from tests.helpers import inside
        def ready():
            try:
                url = agent.url.replace("/metrics", "/-/ready")
                with urllib.request.urlopen(url) as page:
                    return page.status, ""
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
        def misses():
            return sum(value for family in agent.collect()
                       for name, value in family.samples
                       if "cache_misses" in name and "service" in name)
        def sizes():
            several = (service.forward, service.reduce, service.decode,
                       service.predict, service.inner)
            return [one._cache_size() for one in several]
        serve, seen = requests(), []
        before = ready()
        def progress(done, total):
            seen.append([done, total, *ready()])
        several = [service.forward, service.reduce, service.decode,
                   service.predict, service.inner]
        warmed = jaxmon.warmup(several, "signatures.json", progress=progress)
        earlier, old = misses(), sizes()
        {dedent(COUNT).strip().replace(chr(10), chr(10) + " " * 8)}
        serve(), service.inner(1.0)
        print(json.dumps([before, seen, ready(), warmed.warmed, warmed.failed,
                          misses() - earlier, len(BUILT), old, sizes(),
                          inside.overview(agent)["signatures"]]))
    """
    before, seen, after, count, failed, missed, built, old, new, known = python(
        place, program
    ).json()

    assert before == [503, "503 Service Unavailable: the warm-up has not begun\n"]
    assert [one[:3] for one in seen] == [[n, 8, 503] for n in range(1, 9)]
    assert "warming up: 6 of 8 signatures" in seen[5][3]
    assert after == [200, ""]
    assert (count, failed) == (8, [])
    assert missed == built == 0
    assert known == {"recorded": 8, "omitted": 0, "warmed": 8, "failed": 0}
    assert sum(old) == 8
    assert new == old


def test_a_changed_program_is_named(place: Path, tmp_path: Path) -> None:
    """What cannot be compiled fails with a reason."""
    changed = (
        dedent(SERVICE)
        .replace("forward(state, x, scale)", "forward(state, x, factor)")
        .replace("* scale", "* factor")
        .replace("decode = jax.jit(_decode, donate_argnums=0)", "")
    )
    (tmp_path / "service.py").write_text(changed)
    (tmp_path / "signatures.json").write_bytes((place / "signatures.json").read_bytes())
    environ = clean_environ(JAX_COMPILATION_CACHE_DIR=str(tmp_path / "cache"))
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"

    done = subprocess.run(
        ["bash", "-e", "-c", pipeline_step("compile")],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "3 compiled, 0 cached, 5 failed"
    assert (
        sum("(state, x, scale) and are now (state, x, factor)" in s for s in lines) == 3
    )
    assert any("_decode in service is not jitted" in one for one in lines)
    assert any("made inside another function" in one for one in lines)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('no database')", "RuntimeError: no database"),
        pytest.param(
            *("import sys; sys.exit(3)", "SystemExit: 3"), marks=pytest.mark.exhaustive
        ),
        ("import os; os._exit(3)", "the process ended while importing"),
        ("import time; time.sleep(600)", "took longer than 3 s"),
    ],
)
def test_a_module_that_breaks_is_survived(place, tmp_path, source, reason):
    """A module that raises, exits or hangs fails; functions of others are compiled."""
    document = recorded(place)
    (forward,) = [f for f in document["functions"] if f["qualname"] == "forward"]
    broken = {**forward, "function": "broken.f", "module": "broken"}
    broken["signatures"] = broken["signatures"][:1]
    document["functions"] = [broken, forward]
    (tmp_path / "s.json").write_text(json.dumps(document))
    (tmp_path / "service.py").write_text(dedent(SERVICE))
    (tmp_path / "broken.py").write_text(source)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    limit = ("--timeout", "3") if "sleep" in source else ()

    done = warmup(tmp_path, "--signatures", "s.json", *limit, **cache)

    assert done.code == 1
    assert reason in done.out
    if not limit:  # a busy machine may need longer than that for the others
        assert done.out.startswith("3 compiled, 0 cached, 1 failed")


def test_without_a_cache_there_is_nothing_to_fill(place: Path) -> None:
    """Without JAX_COMPILATION_CACHE_DIR the command says so and exits with 2."""
    done = warmup(place, "--signatures", "signatures.json")

    assert done.code == 2
    assert "JAX_COMPILATION_CACHE_DIR is not set" in done.err


def test_a_release_that_would_compile_does_not_pass(
    place: Path, filled: Filled, tmp_path: Path
) -> None:
    """With `check`, what the cache lacks fails by name, and nothing is compiled."""
    before, environ = entries(filled.cache), filled.environ
    check = ("check", "--signatures", str(filled.file))
    (tmp_path / "service.py").write_text(
        dedent(SERVICE).replace("jnp.tanh(x @", "jnp.sin(x @")
    )

    same = warmup(place, *check, **environ).ok()
    changed = warmup(tmp_path, *check, **environ)

    assert same.out.splitlines()[0] == "0 compiled, 8 cached, 0 failed"
    assert changed.code == 1
    first, *failed = changed.out.splitlines()
    assert first == "0 compiled, 5 cached, 3 failed"
    assert all("service.forward" in line for line in failed)
    assert all("the first call would compile" in line for line in failed)
    assert entries(filled.cache) == before
