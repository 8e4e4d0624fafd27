"""What `jaxmon doctor` finds in an environment, check by check."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from jaxmon.facts.reader import from_json
from jaxmon.preflight.doctor import STATUSES, Check, environment, machine, worst
from tests.helpers.findings import by_status


def of_versions(**packages: str) -> dict[str, list[str]]:
    named = {name.replace("_", "-"): text for name, text in packages.items()}
    findings = list(environment.versions(named.get))
    return by_status([one for one in findings if "Python" not in one.text])


def test_versions_that_fit_are_in_order() -> None:
    """JAX, jaxlib and plugins of one release, patch releases by others aside."""
    assert of_versions(
        jax="0.10.2", jaxlib="0.10.2", jax_cuda12_plugin="0.10.2", libtpu="0.0.21"
    ) == {
        "ok": [
            "JAX 0.10.2",
            "jaxlib 0.10.2",
            "jax-cuda12-plugin 0.10.2",
            "libtpu 0.0.21",
        ]
    }
    assert "ok" in of_versions(jax="0.12.0.1", jaxlib="0.12.0")


@pytest.mark.parametrize(
    ("packages", "status", "text"),
    [
        ({}, "failure", "JAX is not installed"),
        ({"jax": "0.10.2"}, "failure", "jaxlib is not installed"),
        ({"jax": "0.4.34", "jaxlib": "0.4.34"}, "failure", "JAX 0.4.34 is too old"),
        (
            {"jax": "0.13.0", "jaxlib": "0.13.0"},
            "note",
            "JAX 0.13.0 is newer than any release jaxmon was tested with",
        ),
        (
            {"jax": "0.10.2", "jaxlib": "0.10.1"},
            "warning",
            "jaxlib 0.10.1 is older than JAX 0.10.2",
        ),
        (
            {"jax": "0.10.1", "jaxlib": "0.10.2"},
            "failure",
            "jaxlib 0.10.2 is newer than JAX 0.10.1",
        ),
        (
            {"jax": "0.10.2", "jaxlib": "0.10.2", "jax_cuda13_pjrt": "0.9.1"},
            "failure",
            (
                "jax-cuda13-pjrt 0.9.1 is incompatible with jaxlib 0.10.2: JAX "
                "may ignore it and run on the CPU"
            ),
        ),
    ],
)
def test_versions_that_do_not_fit(packages, status, text):
    """Each mismatch is named with both versions."""
    assert of_versions(**packages)[status] == [text]


def test_a_clean_environment_is_in_order() -> None:
    """Without variables there is one finding: the defaults are in force."""
    assert by_status(list(environment.variables({}))) == {
        "ok": ["jaxmon's settings: the defaults"]
    }


@pytest.mark.parametrize(
    ("environ", "status", "text", "advice"),
    [
        (
            {"JAXMON_PROT": "1"},
            "warning",
            "JAXMON_PROT is not a jaxmon setting",
            "did you mean JAXMON_PORT?",
        ),
        (
            {"JAXMON_QQQQQQQQ": "1"},
            "warning",
            "JAXMON_QQQQQQQQ is not a jaxmon setting",
            "see docs/settings.md",
        ),
        (
            {"JAXMON_PORT": "99999"},
            "failure",
            "port=99999 is out of range; give 0 to 65535",
            "fix or unset it; otherwise jaxmon.instrument() raises this error",
        ),
        (
            {"JAXMON_ENABLED": "0"},
            "warning",
            "JAXMON_ENABLED disables jaxmon",
            "unset it to enable jaxmon",
        ),
        (
            {"JAX_DISABLE_JIT": "1"},
            "warning",
            "JAX_DISABLE_JIT=1: nothing is compiled; every operation runs individually",
            "unset JAX_DISABLE_JIT in production",
        ),
        (
            {"JAX_ENABLE_X64": "True"},
            "note",
            "JAX_ENABLE_X64: arrays can become float64, which costs memory and time",
            "",
        ),
    ],
)
def test_variables_that_matter(environ, status, text, advice):
    """A typing error, a bad value, and what slows JAX down are reported with advice."""
    findings = [one for one in environment.variables(environ) if one.status != "ok"]
    assert findings == [Check("environment", status, text, advice)]


def test_variables_of_other_parts_are_left_alone() -> None:
    """The exporter's and the dashboards' variables are no settings of the agent."""
    environ = {
        "JAXMON_EXPORTER_PORT": "1",
        "JAXMON_RUN_DIR": "/x",
        "JAX_DEBUG_NANS": "0",
    }
    assert by_status(list(environment.variables(environ))) == {
        "ok": ["jaxmon's settings: JAXMON_RUN_DIR"]
    }


def device(root: Path, vendor: str, kind: str) -> None:
    path = root / "sys/bus/pci/devices/0000:00:04.0"
    path.mkdir(parents=True)
    (path / "vendor").write_text(f"{vendor}\n")
    (path / "class").write_text(f"{kind}\n")


def test_a_host_without_accelerators_is_in_order(tmp_path: Path) -> None:
    """No GPU and no TPU is a normal state."""
    device(tmp_path, "0x1ae0", "0x020000")  # a network card of Google's
    (found,) = machine.devices(tmp_path, lambda _: False, {})
    assert found.status == "ok"


def test_platforms_that_are_not_here(tmp_path: Path) -> None:
    """JAX does not start where JAX_PLATFORMS names what the host lacks."""
    environ = {"JAX_PLATFORMS": "cuda,tpu"}
    found = by_status(list(machine.devices(tmp_path, lambda _: False, environ)))
    assert found["warning"] == [
        (
            "JAX_PLATFORMS=cuda,tpu, but there is no NVIDIA driver: JAX will fail to "
            "start"
        ),
        "JAX_PLATFORMS=cuda,tpu, but there is no TPU: JAX will fail to start",
    ]


def test_a_tpu_without_libtpu(tmp_path: Path) -> None:
    """A TPU is found by its PCI id; the program needs libtpu, the sidecar grpcio."""
    device(tmp_path, "0x1ae0", "0x120000")
    missing = list(machine.devices(tmp_path, lambda _: False, {}))
    assert [(one.status, one.advice) for one in missing] == [
        ("warning", "pip install 'jax[tpu]'"),
        ("warning", "pip install 'jaxmon[tpu]'"),
    ]
    (found,) = machine.devices(tmp_path, {"libtpu", "grpc"}.__contains__, {})
    assert found.status == "ok"


def test_a_gpu_that_jax_cannot_use(tmp_path: Path) -> None:
    """A driver without plugin or library is reported twice."""
    driver = tmp_path / "proc/driver/nvidia/version"
    driver.parent.mkdir(parents=True)
    driver.touch()
    found = by_status(list(machine.devices(tmp_path, lambda _: False, {})))
    assert found == {
        "warning": [
            "an NVIDIA driver is loaded, but JAX has no CUDA plugin",
            "nvidia-ml-py is missing: the sidecar cannot export GPU metrics",
        ]
    }


def test_a_missing_hook_and_a_wrong_count_fail() -> None:
    """Results of the self-test become findings, each with advice."""
    told = {
        "jax": "9.9",
        "hooks": {"misses": False, "calls": True},
        "miscounted": {"calls": [2, 3]},
        "internal_errors": {"compiles": 4},
    }
    found = by_status(list(machine._hooks(from_json(machine._Result, told))))
    assert found == {
        "failure": [
            "hook 'misses' cannot attach to JAX 9.9",
            "a test program made 3 calls, but 2 were counted",
        ],
        "warning": ["jaxmon had 4 internal errors in compiles"],
    }


def test_a_missing_name_says_what_it_costs() -> None:
    """A name that a hook needs is a failure, another a warning; none is in order."""

    def internals(*missing: dict[str, Any]) -> Iterator[Check]:
        result = {"jax": "9.9", "missing": missing}
        return machine._internals(from_json(machine._Result, result))

    needed = {"names": ["a.b"], "costs": ["m", "n"], "hook": "misses"}
    other = {"names": ["c", "d"], "costs": ["o"], "hook": ""}
    found = by_status(list(internals(needed, other)))
    assert found == {
        "failure": ["JAX 9.9 has no a.b; missing without it: m, n"],
        "warning": ["JAX 9.9 has no c or d; missing without it: o"],
    }
    assert by_status(list(internals())) == {
        "ok": ["JAX 9.9 has every name that jaxmon uses, or a substitute"]
    }


def test_a_jax_that_cannot_be_imported(tmp_path: Path) -> None:
    """The error of the import is the finding."""
    (tmp_path / "jax.py").write_text("raise ImportError('broken build')")
    (found,) = machine.hooks({"PYTHONPATH": str(tmp_path)})
    assert found.status == "failure"
    assert "broken build" in found.text


def test_a_python_without_its_lock_fails(tmp_path: Path) -> None:
    """Asked where JAX has been imported, with what brings jaxmon back as the advice."""
    (tmp_path / "jax.py").write_text(
        "import sys\nsys._is_gil_enabled = lambda: False\n__version__ = '0.12.0'"
    )
    (found,) = machine.hooks({"PYTHONPATH": str(tmp_path)})
    assert (found.area, found.status) == ("hooks", "failure")
    assert found.text.endswith(
        "runs without its global interpreter lock (GIL), which jaxmon needs to count "
        "correctly"
    )
    assert found.advice == (
        "set PYTHON_GIL=1, or use a Python that is not free-threaded"
    )


def test_a_broken_nvml_package_is_no_driver_that_hangs(monkeypatch, tmp_path):
    """A package that exists and cannot be imported is reported once, with its error."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()

    here = {"pynvml", "jax_cuda12_plugin"}
    found = list(machine.devices(tmp_path, here.__contains__, environ={}))

    assert [one.status for one in found] == ["warning"]
    assert "querying NVML failed: ModuleNotFoundError" in found[0].text


def test_without_jax_its_self_test_is_left_out(monkeypatch, run_dir):
    """That JAX is missing is reported once, not by every check that needs it."""
    monkeypatch.setattr(environment, "installed", lambda _: None)
    result = CliRunner().invoke(main, ["doctor", "--json", "--run-dir", str(run_dir)])

    areas = {one["area"] for one in json.loads(result.stdout)}
    assert areas == {"versions", "environment", "sockets", "devices"}


def test_the_worst_finding_decides() -> None:
    """Notes are not grave; a failure outweighs everything."""
    of = [Check("x", status, "") for status in STATUSES]
    assert worst([]) == "ok"
    assert worst(of[:2]) == "note"
    assert worst(of) == "failure"
