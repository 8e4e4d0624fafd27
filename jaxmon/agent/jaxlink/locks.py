"""Whether a thread that sleeps waits for a lock."""

from __future__ import annotations

import dis
import os

from jaxmon.agent.jaxlink.other_threads import Position, Stack


# Up to 3.13.
_ENTERS = "BEFORE_WITH"
# Since 3.14; what it loads is called next.
_SPECIAL = "LOAD_SPECIAL"
_ACQUIRING = frozenset(("acquire", "__enter__"))
_THREADING = "threading.py"


def waits_for_lock(stack: Stack) -> bool:
    """
    Return whether a thread that sleeps with this *stack* does so in ``with lock:`` or
    ``lock.acquire()``, also of a class of `threading`. Takes a microsecond for each
    instruction of its function.
    """
    in_threading = 0
    for at in stack:
        if at.code.co_filename.rpartition(os.sep)[2] != _THREADING:
            break
        if at.code.co_name in _ACQUIRING:
            return True
        in_threading += 1
    # An event, or a queue, also acquires a lock to wait.
    return bool(stack) and not in_threading and _acquires(stack[0])


def _acquires(at: Position) -> bool:
    """Return whether the latest instruction acquires something."""
    methods: dict[tuple[int | None, int | None], str] = {}
    for one in dis.get_instructions(at.code):
        place = one.positions
        start = None if place is None else (place.lineno, place.col_offset)
        if one.opname in {"LOAD_METHOD", "LOAD_ATTR"} and start is not None:
            methods[start] = str(one.argval)
        elif one.opname == _SPECIAL and start is not None:
            methods[start] = one.argrepr
        elif one.offset == at.offset:
            called = one.opname.startswith("CALL") and start is not None
            return one.opname == _ENTERS or (
                called and methods.get(start or (None, None)) in _ACQUIRING
            )
        elif one.opname == "CALL":  # what comes next there is another: ``__exit__``
            methods.pop(start or (None, None), None)
    return False
