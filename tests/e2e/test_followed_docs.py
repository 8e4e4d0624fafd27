"""README, the tutorial and the page on troubleshooting, followed to the letter."""

import re
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import Shell, commands, files
from tests.helpers.processes import (
    ROOT,
    clean_environ,
    free_port,
    require_program,
    some,
)


PORTS = ("9466", "9467", "9090", "8000")
INSTALLING = ("python3 -m venv", "pip install", "make ")
DEMO = "jaxmon demo"  # test_demo.py has it
HAS_GPU = Path("/proc/driver/nvidia").exists()


@pytest.mark.parametrize(
    "name", some(["README", "docs/troubleshooting", "docs/tutorial"], 2)
)
def test_every_command_prints_what_the_document_shows(name, tmp_path, run_dir):
    """
    Commands run in one shell; only ports differ, and all is installed already. A
    command below which nothing stands prints nothing.
    """
    text = (ROOT / f"{name}.md").read_text()
    if "$ prometheus" in text:
        require_program("prometheus")
    ports = {port: str(free_port()) for port in PORTS}
    text = re.sub("|".join(PORTS), lambda found: ports[found[0]], text)
    for file, content in files(text).items():
        (tmp_path / file).write_text(content)
    environ = clean_environ(
        run_dir,
        PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin",
        JAXMON_PORT=ports["9466"],
        JAXMON_EXPORTER_PORT=ports["9467"],
        COLUMNS="80",
    )
    with Shell(tmp_path, environ) as shell:
        for command in commands(text):
            needs_none = "libnvidia" in command.text
            elsewhere = command.text.startswith((*INSTALLING, DEMO))
            if elsewhere or (needs_none and HAS_GPU):
                continue
            shell.until_fits(command)
