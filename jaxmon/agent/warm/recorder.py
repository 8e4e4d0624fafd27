"""The signatures of a process, bounded, without user objects."""

from __future__ import annotations

import functools
import json
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxmon.agent.context import Options
from jaxmon.agent.functions import Function
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.arguments import JitCall
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.warm.description import Descriptions
from jaxmon.agent.warm.statics import NotExportableError
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.facts.signatures import Document

SITE = "signatures"

_MOST_SIGNATURES = 256
# Together; a signature takes some 80 bytes per leaf.
_MOST_CHARACTERS = 8 << 20
_FULL = "too many signatures were recorded"
# Flags of code that takes ``*args`` or ``**kwargs``.
_VARIABLE = 0x04 | 0x08


class Recorded:
    """
    The signatures of one function label.

    Args:
        module: where the function is defined, empty if it cannot be imported.
        qualname: its name there.
        parameters: names of its parameters, if known.
        options: its options of `jax.jit`.

    Attributes:
        signatures: compiles and seconds, by signature in JSON.
        omitted: signatures that are missing, by reason.
    """

    def __init__(
        self,
        module: str,
        qualname: str,
        parameters: tuple[str, ...] | None,
        options: dict[str, str],
    ) -> None:
        self.module = module
        self.qualname = qualname
        self.parameters = parameters
        self.options = options
        self.signatures: dict[str, tuple[int, float]] = {}
        self.omitted: Counter[str] = Counter()


class SignatureRecorder:
    """
    Records the call of each compile, on the compiling threads.

    Args:
        jax: the module.
        guard: contains failures.
        values: whether values of static arguments may be recorded.

    Attributes:
        characters: size of all signatures together.
    """

    def __init__(self, jax: Any, guard: Guard, *, values: bool) -> None:
        self._jax, self._guard, self._values = jax, guard, values
        self._describe: Descriptions | None = None
        self._functions: dict[str, Recorded] = {}
        self.characters = 0
        # Reentrant: a signal handler may compile, too.
        self._lock = RLock()

    def on_call(
        self, function: Function, jitted: Jitted, call: JitCall, options: Options
    ) -> Callable[[float], None] | None:
        """Describe a *call* that compiles; return what records it afterwards."""
        if SITE in self._guard.off:
            return None
        try:
            if self._describe is None:
                self._describe = Descriptions(self._jax, values=self._values)
            known = self._of(function, jitted, options)
            try:
                text = self._describe.of(call)
            except NotExportableError as reason:
                known.omitted[str(reason)] += 1
                return None
        except Exception:  # noqa: BLE001 - contained: the program compiles on
            self._guard.failed(SITE)
            return None
        return functools.partial(self._note, known, text)

    def _of(self, function: Function, jitted: Jitted, options: Options) -> Recorded:
        known = self._functions.get(function.name)
        if known is None:
            fun: Any = jitted.fun
            named = type(fun) is types.FunctionType
            made = Recorded(
                str(fun.__module__ or "") if named else "",
                str(fun.__qualname__) if named else "",
                parameters_of(fun),
                {name: text[:300] for name, text, _ in options[1:]},
            )
            known = self._functions.setdefault(function.name, made)
        return known

    def _note(self, known: Recorded, text: str, seconds: float) -> None:
        with self._lock:
            found = known.signatures.get(text)
            if found is None:
                many = len(known.signatures) >= _MOST_SIGNATURES
                if many or self.characters + len(text) > _MOST_CHARACTERS:
                    known.omitted[_FULL] += 1
                    return
                self.characters += len(text)
            count, total = found or (0, 0.0)
            known.signatures[text] = count + 1, total + seconds

    def explain(self) -> dict[str, int]:
        """Return how many signatures were recorded, and how many could not be."""
        known = list(self._functions.values())
        return {
            "recorded": sum(len(one.signatures) for one in known),
            "omitted": sum(sum(one.omitted.copy().values()) for one in known),
        }

    def document(self, calls: Callable[[str, Any], float | None]) -> Document:
        """
        Return everything recorded so far.

        Args:
            calls: returns the estimated calls of a function with these arguments.
        """
        from jaxmon.facts import signatures as document  # noqa: PLC0415 - on request

        functions = []
        for name, one in sorted(self._functions.copy().items()):
            signatures = []
            for text, (count, seconds) in one.signatures.copy().items():
                args, kwargs = json.loads(text)
                signatures.append(
                    document.RecordedSignature(
                        tuple(args), kwargs, count, seconds, calls(name, (args, kwargs))
                    )
                )
            functions.append(
                document.RecordedFunction(
                    name,
                    one.module,
                    one.qualname,
                    one.parameters,
                    one.options,
                    tuple(signatures),
                    dict(one.omitted.copy()),
                )
            )
        return document.Document(self._versions(), _main(), tuple(functions))

    def _versions(self) -> dict[str, str]:
        platform = self._jax.default_backend() if self._functions else ""
        return {"jax": str(self._jax.__version__), "platform": str(platform)}


def parameters_of(fun: Any) -> tuple[str, ...] | None:
    """Return the names of the parameters of *fun*; `None` if it is no function."""
    if type(fun) is not types.FunctionType:
        return None
    code = fun.__code__
    if fun.__dict__ or code.co_flags & _VARIABLE:  # it may have another signature
        import inspect  # noqa: PLC0415 - few have

        return tuple(inspect.signature(fun).parameters)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _main() -> str:
    """Return the name of the module that runs as ``__main__``, if it has one."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = getattr(spec, "name", "")
    return name if type(name) is str else ""
