"""
Run the ground-truth tests on every supported JAX, each in its own environment.

Prints a table. A Python that is not installed is a row that says so; any failure
makes the exit code 1.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "compat"
MARKER = "pytest.mark.ground_truth"

MATRIX = (
    ("3.11", "0.4.35"),
    ("3.11", "0.6.2"),
    ("3.11", "0.8.2"),
    ("3.11", "0.10.2"),
    ("3.12", "0.12.*"),
    ("3.13", "0.12.*"),
    ("3.14", "0.12.*"),
)

# JAX before 0.5 exports with absl, which nothing there requires.
TEST_PACKAGES = ("absl-py", "pytest", "pytest-timeout", "pytest-xdist")
# Not all of them support every JAX; tests skip what is missing.
OPTIONAL_PACKAGES = (
    *("beartype", "cloudpickle", "jaxtyping", "joblib"),
    *("flax", "mlflow-skinny", "orbax-checkpoint"),
    *("tensorboard", "wandb"),
)
# Pinned for the newest JAX that development uses; here the matrix decides.
UNPINNED = ("jax==", "jaxlib==", "ml_dtypes==", "numpy==", "scipy==")
INSTALL_SECONDS = 900
TEST_SECONDS = 1200


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    python: str
    jax: str
    result: str
    seconds: float
    failed: bool


def main() -> int:
    """Run the matrix, or the versions given as arguments; return the exit code."""
    files = [str(path) for path in marked_files()]
    if not files:
        print(f"no test file carries {MARKER}")
        return 1
    chosen = [row for row in MATRIX if not sys.argv[1:] or row[1] in sys.argv[1:]]
    rows = []
    for python, jax in chosen:
        started = time.monotonic()
        found, result, failed = run(python, jax, files)
        rows.append(Row(python, found, result, time.monotonic() - started, failed))
        print(f"Python {python}, JAX {found}: {result}", flush=True)
    print()
    print(f"{'Python':8}{'JAX':12}{'seconds':>8}  result")
    for row in rows:
        print(f"{row.python:8}{row.jax:12}{row.seconds:8.0f}  {row.result}")
    return any(row.failed for row in rows)


def marked_files() -> Iterator[Path]:
    """
    Yield the test files that hold ground-truth tests.

    Others are not even collected: they may import what these environments lack.
    """
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if MARKER in path.read_text():
            yield path.relative_to(ROOT)


def run(python: str, jax: str, files: list[str]) -> tuple[str, str, bool]:
    """
    Return the JAX version found, the result in words, and whether it is a failure.
    """
    program = interpreter(python)
    if program is None:
        return jax, "not installed", False
    try:
        environment = prepare(program, python, jax)
        version = output(environment, "-c", "import jax; print(jax.__version__)")
        tests = subprocess.run(
            [environment, "-m", "pytest", "-q", "-m", "ground_truth", *files],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TEST_SECONDS,
            check=False,
        )
    except subprocess.CalledProcessError as error:
        print(error.stdout, error.stderr, sep="\n")
        return jax, "environment failed", True
    except subprocess.TimeoutExpired as error:
        return jax, f"timed out after {error.timeout:g} s", True
    if tests.returncode:
        print(tests.stdout, tests.stderr, sep="\n")
    lines = tests.stdout.strip().splitlines() or ["no output"]
    return version, lines[-1].strip("= "), bool(tests.returncode)


def interpreter(version: str) -> str | None:
    """Return a Python of this minor *version*, from PATH or pyenv."""
    name = f"python{version}"
    pyenv = Path.home() / ".pyenv" / "versions"
    candidates = [sys.executable, shutil.which(name)]
    candidates += map(str, sorted(pyenv.glob(f"{version}.*/bin/{name}"), reverse=True))
    probe = "import sys; print('{}.{}'.format(*sys.version_info))"
    for candidate in filter(None, candidates):
        try:
            # A pyenv shim exists for versions that are not selected, too.
            if output(candidate, "-c", probe) == version:
                return candidate
        except (OSError, subprocess.CalledProcessError):
            continue
    return None


def prepare(program: str, python: str, jax: str) -> str:
    """Return the Python of an environment with this *jax*; an earlier one is reused."""
    directory = CACHE / f"python{python}-jax{jax.removesuffix('.*')}"
    environment, ready = directory / "bin" / "python", directory / "ready"
    inputs = (ROOT / "pyproject.toml", ROOT / "constraints.txt", Path(__file__))
    if ready.exists() and all(
        path.stat().st_mtime < ready.stat().st_mtime for path in inputs
    ):
        return str(environment)
    shutil.rmtree(directory, ignore_errors=True)
    output(program, "-m", "venv", str(directory))
    pins = directory / "constraints.txt"
    pinned = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    pins.write_text("".join(pin for pin in pinned if not pin.startswith(UNPINNED)))
    pip = ("-m", "pip", "install", "--quiet", "-c", str(pins))
    jax_packages = f"jax=={jax}", f"jaxlib=={jax}"
    output(str(environment), *pip, "-e", str(ROOT), *jax_packages, *TEST_PACKAGES)
    for package in OPTIONAL_PACKAGES:
        with suppress(subprocess.CalledProcessError):
            output(str(environment), *pip, package, *jax_packages)
    ready.touch()
    return str(environment)


def output(program: str, *args: str) -> str:
    """
    Return what a short command prints.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    return subprocess.run(
        [program, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=True,
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
