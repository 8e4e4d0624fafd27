"""What pages say of a real program: on its own port, and after it has crashed."""

from __future__ import annotations

from subprocess import PIPE

from tests.helpers.browser import (
    CONTRAST,
    PHONE,
    accessibility_faults,
    answer,
    console,
    findings,
    focused,
    open_page,
    require_axe,
    text,
)
from tests.helpers.preloaded import start_preloaded
from tests.helpers.processes import clean_environ, until


PROGRAM = """
import sys, time
import jaxmon
agent = jaxmon.instrument(port=0)
print(agent.url.replace("metrics", ""), flush=True)
for number in jaxmon.steps(range(10**6)):
    time.sleep(0.02)
    if number == 100:
        print("100 steps", flush=True)
        sys.stdin.readline()
        raise ValueError("shard 7 is truncated")
"""


def test_a_program_shows_why_it_has_no_findings(chrome, exporter, tmp_path, run_dir):
    """
    Its own page names the command that has them. After an exception, the sidecar's says
    which, in its first line and nowhere else.
    """
    (tmp_path / "train.py").write_text(PROGRAM)
    environ = clean_environ(run_dir)
    with start_preloaded(
        "train.py", cwd=tmp_path, environ=environ, stdin=PIPE, stdout=PIPE
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdin is not None
            url = program.stdout.readline().strip()
            open_page(chrome, url, PHONE, scheme="dark")
            until(lambda: findings(chrome), "the reason")
            (reason,) = findings(chrome)
            assert reason == (
                "Findings are not shown on a program's own port, because they name "
                "files, lines and values: run jaxmon explain 0 on its host, or open "
                "the page of jaxmon exporter."
            )
            typed = "return document.querySelector('#findings kbd').innerText"
            assert chrome.execute_script(typed) == "jaxmon explain 0"
            assert chrome.execute_script(CONTRAST) == []
            assert all(seen for _, seen in focused(chrome))
            assert console(chrome) == []
            require_axe()
            assert accessibility_faults(chrome) == []
            program.stdin.close()
            program.wait(60)
        finally:
            program.kill()
    open_page(chrome, exporter("--port", "0").url, PHONE)
    until(lambda: "ValueError" in answer(chrome)[1], "the crash")
    assert answer(chrome)[0] == "failing"
    assert text(chrome, "main").count("shard 7 is truncated") == 1
