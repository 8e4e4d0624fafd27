"""What an import costs, and what it offers."""

import shutil

import pytest

import jaxmon
from jaxmon.cli.main import COMMANDS
from tests.helpers.processes import ROOT, run_python, some


HEAVY = (
    "asyncio",
    "click",
    "jax",
    "jaxlib",
    "numpy",
    "prometheus_client",
    "psutil",
    "pynvml",
    "yaml",
)


def loaded_by(code):
    """Return which `HEAVY` modules are loaded after *code* in a fresh process."""
    probe = (
        "import json, sys\n"
        "print(json.dumps(sorted(set(sys.argv[1:]) & set(sys.modules))))"
    )
    return run_python("-c", f"{code}\n{probe}", *HEAVY).json()


@pytest.mark.parametrize(
    "code", ["import jaxmon", "import jaxmon_exporter", "import jaxmon.catalog"]
)
def test_import_loads_nothing_heavy(code):
    """Importing a package costs what the standard library's small modules cost."""
    assert loaded_by(code) == []


@pytest.mark.parametrize("module", ["asyncio", "prometheus_client", "psutil", "yaml"])
def test_a_heavy_import_would_be_noticed(module):
    """The check above can fail."""
    assert module in loaded_by(f"import jaxmon, {module}")


def test_an_agents_server_is_light():
    """It brings no event loop into the program, nor TLS."""
    assert loaded_by("import jaxmon.host.http.server") == []
    code = "import jaxmon.host.http.server, sys; print('ssl' in sys.modules)"
    assert run_python("-c", code).ok().out == "False\n"


def test_public_names_load_on_use():
    """Naming an error, or marking requests, loads no JAX."""
    assert loaded_by("import jaxmon; jaxmon.SettingsError; jaxmon.__version__") == []
    assert (
        loaded_by("import jaxmon; jaxmon.request; jaxmon.steps; jaxmon.activity") == []
    )
    assert loaded_by("import jaxmon; jaxmon.queue; jaxmon.batch") == []
    assert loaded_by("import jaxmon.asgi, jaxmon.wsgi") == []


@pytest.mark.parametrize(
    "arguments", some([["--help"], *([name, "--help"] for name in COMMANDS)], 3)
)
def test_help_is_quick(arguments):
    """Help loads click, and nothing that a command needs to do its work."""
    code = (
        "from jaxmon.cli.main import main\n"
        f"main({arguments!r}, prog_name='jaxmon', standalone_mode=False)"
    )
    assert loaded_by(code) == ["click"]


# What an agent with default settings needs later, seldom or never.
LATER = (
    "asyncio",
    "concurrent.futures",
    "fractions",
    "jaxmon.agent.cache.obstacles",
    "jaxmon.agent.checks.results",
    "jaxmon.agent.checks.shadow",
    "jaxmon.agent.devices.hardware",
    "jaxmon.agent.devices.driver_metrics",
    "jaxmon.agent.devices.hardware",
    "jaxmon.agent.ledger",
    "jaxmon.agent.memory.leaks",
    "jaxmon.agent.memory.profile",
    "jaxmon.agent.memory.profile",
    "jaxmon.agent.oom.text",
    "jaxmon.exposition.parse",
    "jaxmon.exposition.plausible",
    "jaxmon.host.http.client",
    "jaxmon.host.formats.layout",
    "jaxmon.host.resources.container",
    "jaxmon.host.tpus",
    "logging.handlers",
    "mmap",
    "pytest",
    "statistics",
    "unicodedata",
)


def test_a_start_loads_what_an_agent_needs_at_once():
    """
    Whatever else it takes is loaded at the first look, report, check, page or budget,
    so that programs that need none of it do not wait for it. The data of the start are
    no dataclasses, each of which takes as long as several modules.
    """
    code = (
        "import dataclasses, json, jax, sys\n"
        "before, made = set(sys.modules), []\n"
        "make = dataclasses._process_class\n"
        "def counting(kind, *args):\n"
        "    made.append(kind.__qualname__)\n"
        "    return make(kind, *args)\n"
        "dataclasses._process_class = counting\n"
        "import jaxmon\n"
        "jaxmon.instrument(port=0, socket=False)\n"
        "loaded = set(sys.modules) - before\n"
        "jaxmon.uninstrument()\n"
        "print(json.dumps([sorted(set(sys.argv[1:]) & loaded), made]))"
    )
    loaded, made = run_python("-c", code, *LATER).json()
    assert loaded == []
    assert set(made) <= {"Context", "Settings"}


def test_import_does_nothing():
    """Importing starts no thread, registers no handler and reads no setting."""
    code = (
        "import json, logging, os, signal, sys, threading\n"
        "before = sys.excepthook, signal.getsignal(signal.SIGTERM)\n"
        "import jaxmon, jaxmon_exporter\n"
        "assert (sys.excepthook, signal.getsignal(signal.SIGTERM)) == before\n"
        "assert threading.active_count() == 1\n"
        "assert not logging.root.handlers\n"
    )
    run_python("-c", code, env={"JAXMON_PORT": "nonsense"}).ok()


def test_public_surface():
    """These names are promised to users; changing the list is a release note."""
    assert sorted(jaxmon.__all__) == [
        "Agent",
        "BudgetExceeded",
        "CompiledAfterReady",
        "DeterminismCheck",
        "Deviation",
        "GradientCheck",
        "JaxmonError",
        "Queue",
        "SettingsError",
        "Warmed",
        "activity",
        "batch",
        "budget",
        "check_determinism",
        "check_gradients",
        "flush",
        "instrument",
        "log_to",
        "log_values",
        "queue",
        "ready",
        "request",
        "serverless",
        "steps",
        "uninstrument",
        "warmup",
    ]
    assert set(jaxmon.__all__) <= set(dir(jaxmon))
    for name in jaxmon.__all__:
        assert getattr(jaxmon, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = getattr(jaxmon, "nonsense")  # noqa: B009 - mypy knows it is not there


@pytest.mark.exhaustive
def test_user_code_type_checks(tmp_path):
    """From outside, mypy finds our types, and rejects what it should."""
    mypy = pytest.importorskip("mypy.api")
    shutil.copy(ROOT / "tests" / "typing" / "api.py", tmp_path)
    config = tmp_path / "mypy.ini"
    # JAX's own types play no part, and take half a minute to analyse.
    config.write_text("[mypy]\nstrict = true\n[mypy-jax.*]\nfollow_imports = skip\n")
    out, err, code = mypy.run(
        [
            f"--config-file={config}",
            f"--cache-dir={tmp_path / 'cache'}",
            str(tmp_path / "api.py"),
        ]
    )
    assert code == 0, out + err
