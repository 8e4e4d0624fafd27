"""What warm starts need of a process: its signatures, and whether it is ready."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from types import FrameType
from typing import TYPE_CHECKING, Any

from jaxmon import catalog
from jaxmon.agent.context import Context, Options
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arguments import JitCall, Shapes
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.warm.ready import Readiness
from jaxmon.exposition.families import Family, Tally, gauge, series
from jaxmon.host.http.messages import Request, Response, error_response
from jaxmon.host.http.server import Handler
from jaxmon.host.sources import display_path


if TYPE_CHECKING:
    from jaxmon.agent.warm.recorder import SignatureRecorder
    from jaxmon.agent.warm.uses import WarmedPrograms
    from jaxmon.facts.events import Signatures
    from jaxmon.facts.signatures import RecordedSignature


# Programs of all functions whose sampled calls are counted.
_MOST_SHAPES = 10_000
# As many leaves as samples are distinguished by.
_LEAVES = 256


class WarmStarts(Part):
    """Records signatures, and responds whether the process is ready."""

    name = "signatures"

    def __init__(self, context: Context) -> None:
        self._table = context.table
        settings = context.settings
        self.readiness = Readiness(
            context.observers,
            expected=settings.expect_warmup,
            mode=settings.after_ready,
        )
        self.warmed = {result: Tally() for result in catalog.WARMUP_RESULTS}
        self._context = context
        # Loaded at the first compile. Two threads may both make one; all use the first.
        self._recorders: list[SignatureRecorder] = []
        self._sampled: dict[tuple[str, str], int] = {}
        if context.settings.signatures:
            context.observers.call.append(self._on_call)
            context.observers.executed.append(self._executed)

    @property
    def recorder(self) -> SignatureRecorder:
        """Records signatures."""
        if not self._recorders:
            from jaxmon.agent.warm.recorder import SignatureRecorder  # noqa: PLC0415

            values = self._context.settings.event_values
            made = SignatureRecorder(
                self._context.jax, self._context.guard, values=values
            )
            self._recorders.append(made)
        return self._recorders[0]

    def _on_call(
        self, function: Function, jitted: Jitted, call: JitCall, options: Options
    ) -> Callable[[float], None] | None:
        try:
            recorder = self.recorder
        except Exception:  # noqa: BLE001 - contained: the program compiles on
            self._context.guard.failed(self.name, stays_on=True)
            return None
        return recorder.on_call(function, jitted, call, options)

    def begin(
        self, total: int, caller: FrameType, watched: Iterable[Any]
    ) -> WarmedPrograms:
        """
        Record that a warm-up of *total* signatures begins, and where; uses of programs
        of the jitted objects *watched* are noticed.
        """
        from jaxmon.agent.warm.uses import WarmedPrograms  # noqa: PLC0415 - few warm up

        self.readiness.begin(total)
        place = f"{display_path(caller.f_code.co_filename)}:{caller.f_lineno}"
        programs = self.readiness.programs or WarmedPrograms(
            self._context.observers, self._exact_calls, place
        )
        self.readiness.programs = programs
        programs.watch(watched)
        return programs

    def end(self, *, failed: bool) -> None:
        """Record that a signature was tried."""
        self.warmed["failed" if failed else "warmed"].add()
        self.readiness.advance()
        if self.readiness.programs is not None:
            self.readiness.programs.end(failed=failed)

    def _exact_calls(self, name: str) -> int | None:
        function = self._table.named(name)
        # Others of its objects may not count.
        exact = function.counted and not function.other_missed.value
        return function.calls_and_hits()[0] if exact else None

    def collect(self) -> list[Family]:
        """Return whether the process is ready, its warm-ups, and compiles since."""
        metric = catalog.WARMUP_SIGNATURES
        return [
            gauge(catalog.READY, int(self.readiness.reason is None)),
            Family(
                metric,
                [(series(metric, name), n.value) for name, n in self.warmed.items()],
            ),
            self.readiness.collect(),
        ]

    def explain(self) -> Explanation:
        """Return how many signatures there are, those warmed up, and late compiles."""
        ready = self.readiness.explain
        return Explanation({"signatures": self._explain, "ready": ready})

    def _explain(self) -> Signatures:
        # Without a compile nothing is loaded that would record one.
        counts = self.recorder.explain() if self._recorders else {}
        from jaxmon.facts.events import Signatures  # noqa: PLC0415 - on request

        return Signatures(
            **counts, **{name: n.value for name, n in self.warmed.items()}
        )

    def pages(self) -> Mapping[str, Handler]:
        """Return the signatures, for `jaxmon signatures export`."""
        return {"/debug/signatures": self._page}

    def public_pages(self) -> Mapping[str, Handler]:
        """Return the readiness probe."""
        return {"/-/ready": self._ready}

    def _ready(self, _: Request) -> Response:
        reason = self.readiness.reason
        if reason is None:
            self.readiness.probed()
            return Response(b"ok\n")
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, reason)

    def _page(self, _: Request) -> Response:
        if not self._context.settings.signatures:
            message = "signatures are not recorded: JAXMON_SIGNATURES is false"
            return error_response(HTTPStatus.NOT_FOUND, message)
        built = {of.name: of.built for of in self._table if of.is_users and of.built}
        found = self.recorder.document(self._seen, built).as_json()
        # As long as the tree is ours, it has no cycles to look for.
        text = json.dumps(found, check_circular=False)
        return Response(text.encode(), "application/json")

    def _executed(self, function: Function, shapes: Shapes, seconds: float) -> None:
        """Count a sampled call; on a thread of ours."""
        del seconds
        arrays = [shape for shape in shapes if isinstance(shape, tuple)]
        words = [f"{dtype}{list(sizes)}" for dtype, sizes, *_ in arrays]
        key = function.name, " ".join(words)
        if key in self._sampled or len(self._sampled) < _MOST_SHAPES:
            self._sampled[key] = self._sampled.get(key, 0) + 1

    def _seen(self, name: str, of: RecordedSignature) -> RecordedSignature:
        """
        Return a signature with its use, and its estimated calls: its fraction of the
        sampled ones.
        """
        from jaxmon.facts.signatures import ARRAYS, parts  # noqa: PLC0415 - on request

        programs, function = self.readiness.programs, self._table.named(name)
        used = None if programs is None else programs.used(name, of)
        counts = {
            arrays: count
            for (called, arrays), count in self._sampled.copy().items()
            if called == name
        }
        nodes = [node for _, node in parts(of) if node and node.get("kind") in ARRAYS]
        words = [f"{node['dtype']}{node['shape']}" for node in nodes[-_LEAVES:]]
        total, number = sum(counts.values()), counts.get(" ".join(words), 0)
        calls = round(function.calls_and_hits()[0] * number / (total or 1), 1)
        return of._replace(calls=calls if total else None, used=used)
