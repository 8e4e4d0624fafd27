"""Names of processes, out of their command lines."""

import pytest

from jaxmon.screens.programs import begins, label, names, without_interpreter


@pytest.mark.parametrize(
    ("program", "rest", "expected"),
    [
        ("python3 train.py --steps 9", "train.py --steps 9", ("train.py", "train")),
        ("python3 a/b/t.py", "a/b/t.py", ("a/b/t.py", "t.py", "t")),
        ("python -m pkg.serve -x", "-m pkg.serve -x", ("pkg.serve",)),
        ("python -u -X dev -W error run.py", "run.py", ("run.py", "run")),
        ("python -c import jax", "-c import jax", ()),
        ("python /opt/bin/uvicorn a:b", "/opt/bin/uvicorn a:b", None),
        ("python -", "-", ()),
        ("python", "python", ()),
        ("", "", ()),
    ],
)
def test_names_are_those_of_script_or_module(program, rest, expected):
    """Options of Python and directories do not belong to the name."""
    assert without_interpreter(program) == rest
    found = names(program)
    assert found == (("/opt/bin/uvicorn", "uvicorn") if expected is None else expected)


def test_a_beginning_is_enough() -> None:
    """The command may begin with the interpreter, the script or the module."""
    program = "python3 -m uvicorn app:app --workers 2 (SpawnProcess-1)"

    for text in ("python3 -m uv", "-m uvicorn app", "uvicorn app:app --w", "uvi"):
        assert begins(program, text), text
    assert not begins(program, "app")


def test_a_label_begins_with_the_name() -> None:
    """Directories would take the room of what differs."""
    assert label("python3 /srv/a/train.py --data /x/y") == "train.py --data /x/y"
    assert label("python -m pkg.serve -p 1 (Worker-2)") == "pkg.serve -p 1 (Worker-2)"
    assert label("") == ""
