"""Starting with the import of JAX, from inside a program."""


def test_starts_with_the_import_and_then_steps_aside(python_script):
    """Settings reach the agent, once, and nothing stays on ``sys.meta_path``."""
    script = """
import json, sys
from jaxmon.autostart import when_jax_is_imported

finders = list(sys.meta_path)
when_jax_is_imported(port=0, max_functions=7)
waiting = "jaxmon.agent" not in sys.modules and sys.meta_path != finders
import jax
import jaxmon
agent = jaxmon.instrument()
print(json.dumps({
    "waiting": waiting,
    "max_functions": agent.settings.max_functions,
    "back": [f for f in sys.meta_path if "jaxmon" in type(f).__module__] == [],
    "loader": "exec_module" in vars(jax.__loader__),
}))
"""
    assert python_script(script).json() == {
        "waiting": True,
        "max_functions": 7,
        "back": True,
        "loader": False,
    }


def test_starts_at_once_where_jax_is_imported(preloaded_script):
    """Code after the import need not wait for a second one."""
    script = """
import json, sys
import jax
from jaxmon.autostart import when_jax_is_imported
when_jax_is_imported(port=0)
import jaxmon.agent
print(json.dumps(jaxmon.agent.instrument().url is not None))
"""
    assert preloaded_script(script).json() is True


def test_names_the_problem_when_it_cannot_start(python_script, tmp_path):
    """An unusable setting costs a line of log, not the program."""
    script = """
from jaxmon.autostart import when_jax_is_imported
when_jax_is_imported(port=70_000)
import jax
print("goes on")
"""
    (tmp_path / "jax.py").touch()
    result = python_script(script).ok()

    assert result.out == "goes on\n"
    assert "port=70000 is out of range" in result.err
    assert len(result.err.splitlines()) == 1


def test_loader_that_cannot_be_followed_is_left_alone(python_script):
    """An import hook with a loader of its own kind still imports."""
    script = """
import sys, types
from importlib.machinery import ModuleSpec
from jaxmon.autostart import when_jax_is_imported

class Loader:
    __slots__ = ()
    def create_module(self, spec): return None
    def exec_module(self, module): module.version = "own"

class Finder:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, Loader()) if name == "jax" else None

sys.meta_path.insert(0, Finder())
when_jax_is_imported()
import jax
print(jax.version)
"""
    result = python_script(script).ok()

    assert result.out == "own\n"
    assert "jaxmon could not start" in result.err
