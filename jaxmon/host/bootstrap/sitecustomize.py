"""
Imported by Python at startup, in an interpreter that `jaxmon run` started.

With ``--children`` that is any Python process that the program starts, directly or not:
of another release, or of an environment without jaxmon. There it must do nothing. So it
needs no more than Python 3.0, and loads nothing else until JAX is imported.
"""

import os
import sys


TYPE_CHECKING = False  # without the module `typing`
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def _leave_path() -> None:
    """Take this directory from the path, as if it had never been there."""
    here = os.path.dirname(__file__)  # noqa: PTH120 - spelled as on sys.path
    sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)


def _observe_this_process(text: str) -> None:
    """Restore the user's environment, and wait for the import of JAX."""
    import json  # noqa: PLC0415 - not in every child, see above

    message = json.loads(text)
    if message["pythonpath"] is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = message["pythonpath"]
    from jaxmon.autostart import when_jax_is_imported  # noqa: PLC0415
    from jaxmon.host.bootstrap import Started  # noqa: PLC0415

    when_jax_is_imported(**message["settings"])
    Started().watch()


def _interruptibly(work: "Callable[[str], None]", text: str) -> None:
    """
    Do *work* with *text*; Ctrl-C meanwhile ends the process with the default action.
    Python would take it for a fatal error, and print where it was importing.
    """
    import _signal  # type: ignore[import-not-found] # noqa: PLC0415 - built in

    handler = _signal.getsignal(_signal.SIGINT)
    if handler is not _signal.default_int_handler:
        return work(text)
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    try:
        return work(text)
    finally:
        _signal.signal(_signal.SIGINT, handler)


class _Waiting:
    """
    First on ``sys.meta_path`` until JAX is imported for the first time, when
    `jaxmon.autostart` takes its place.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def find_spec(
        self,
        name: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        """Return what the finder finds that takes this one's place."""
        if name != "jax" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            import json  # noqa: PLC0415 - not in every child, see above

            from jaxmon.autostart import when_jax_is_imported  # noqa: PLC0415
        except ImportError:  # jaxmon is not installed in this environment
            return None
        try:
            when_jax_is_imported(**json.loads(self._settings))
        except Exception as error:  # noqa: BLE001 - the program comes first
            _complain(error)
            return None
        # Python goes on behind this place on the path.
        return sys.meta_path[0].find_spec(name, path, target)

    def wait(self) -> None:
        """Wait for the import of JAX."""
        sys.meta_path.insert(0, self)


def _is_forkserver() -> bool:
    """Return whether this forks workers; it imports the program's main module."""
    return any(
        "multiprocessing.forkserver" in word for word in getattr(sys, "orig_argv", ())
    )


def _complain(error: Exception) -> None:
    text = "jaxmon could not start; the program runs without it: %s: %s\n"
    sys.stderr.write(text % (type(error).__name__, error))


def _start() -> None:
    try:
        _leave_path()
        of_one = os.environ.pop("JAXMON_BOOTSTRAP", None)
        of_all = os.environ.get("JAXMON_BOOTSTRAP_CHILDREN")
        if of_one is not None:
            _interruptibly(_observe_this_process, of_one)
        elif of_all is None or sys.version_info < (3, 11):
            pass
        elif _is_forkserver():
            from jaxmon.autostart import in_forked_children  # noqa: PLC0415

            in_forked_children(of_all)
        else:
            _Waiting(of_all).wait()
    except Exception as error:  # noqa: BLE001 - the program comes first
        _complain(error)


_start()

# The environment's own module, which this one shadows. If there is none, the
# ImportError ends this import as well, and Python takes it as it does without us.
del sys.modules["sitecustomize"]
__import__("sitecustomize")
