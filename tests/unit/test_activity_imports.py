"""What a thread does that imports: the line of the program, and what is done once."""

import dis

import pytest

from jaxmon.agent.jaxlink.activity import (
    PYTHON,
    STARTUP,
)
from jaxmon.agent.jaxlink.other_threads import Position
from tests.helpers.stacks import (
    INSTALLED,
    LIBRARY,
    MACHINERY,
    OF_JAX,
    PROGRAM,
    module_of,
    read,
)


@pytest.mark.parametrize(
    "innermost",
    [
        [LIBRARY],
        [OF_JAX],
        [MACHINERY],
        [OF_JAX, MACHINERY, LIBRARY],
        [INSTALLED],
        [LIBRARY, INSTALLED, MACHINERY, INSTALLED],
    ],
)
def test_a_library_is_imported_on_a_line_of_the_program(innermost):
    """What the modules of libraries do is no work of the program."""
    found = read(*innermost, MACHINERY, PROGRAM)

    assert (found.state, found.line.file) == (STARTUP, "/app/train.py")


def test_a_program_that_is_imported_runs() -> None:
    """A module of the program may train where it is imported."""
    main = module_of("/app/main.py")

    assert read(LIBRARY, INSTALLED, PROGRAM, MACHINERY, main).state == PYTHON


@pytest.mark.parametrize(
    ("stack", "once"),
    [
        ([PROGRAM], True),
        ([LIBRARY, PROGRAM], True),
        ([LIBRARY, PROGRAM, MACHINERY, module_of("/app/main.py"), MACHINERY], True),
        ([PROGRAM, LIBRARY, PROGRAM], False),
        ([Position(module_of.__code__, 0, {}), LIBRARY], False),
    ],
)
def test_what_a_module_does_is_done_once(stack, once):
    """Unless a library, or a thread, calls it: maybe again and again."""
    assert read(*stack).once is once


def test_what_is_in_a_loop_is_not_done_once() -> None:
    """Wherever the loop is on the stack."""
    code = compile("while x:\n    f()", "/app/train.py", "exec")
    after = [of for of in dis.get_instructions(code) if of.opname.startswith("CALL")]
    at = Position(code, after[-1].offset, {})

    assert not read(LIBRARY, at).once
    assert not read(PROGRAM, at).once
