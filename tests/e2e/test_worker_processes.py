"""
A server with several worker processes and a sidecar, on the ports of the README.

They have a network of their own, so that what else runs on this host is not in the way.
"""

import json
import shutil
import subprocess
import sys

import pytest

from tests.helpers.processes import ROOT, clean_environ


WORKERS = 4

APP = """
import jaxmon
agent = jaxmon.instrument()
import jax
twice = jax.jit(lambda x: x * 2)

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    twice(1.0)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(agent.url).encode()})
"""

# In a network of its own, whose loopback interface is down at first.
SITE = """
import fcntl, json, socket, struct, subprocess, sys
from tests.helpers.sidecars import JAXMON, Exporter, values
from tests.helpers.processes import until
with socket.socket() as one:
    up = struct.pack("16sH14s", b"lo", 1, b"")
    fcntl.ioctl(one, 0x8914, up)
workers = int(sys.argv[1])

def agents(sidecar):
    page = values(sidecar.get())
    return {name: value for name, value in page.items() if "jaxmon_agent_up" in name}

server = subprocess.Popen(
    [sys.executable, "-m", "uvicorn", "--workers", str(workers), "app:app"],
    stderr=subprocess.DEVNULL,
)
ports = range(9466, 9466 + 2 * workers)
def listening():
    lines = open("/proc/net/tcp").read().splitlines()[1:]
    fields = [line.split() for line in lines]
    taken = {int(one[1].split(":")[1], 16) for one in fields if one[3] == "0A"}
    return sorted(taken & set(ports))
try:
    until(lambda: len(listening()) >= workers, "the workers", seconds=90)
    taken = listening()
    sidecar = Exporter(
        subprocess.Popen([JAXMON, "exporter"], stderr=subprocess.PIPE, text=True)
    )
    try:
        if sidecar.url:
            until(lambda: sum(agents(sidecar).values()) == workers, "all agents")
            server.terminate()
            server.wait(60)
            until(lambda: not any(agents(sidecar).values()), "the agents to be gone")
            page = values(sidecar.get())
    finally:
        sidecar.stop()
finally:
    server.terminate()
    server.wait(60)
errors = "jaxmon_collector_errors_total{collector=\\"agents\\""
print(json.dumps({
    "taken": taken,
    "url": sidecar.url,
    "log": sidecar.log,
    "errors": {n: v for n, v in page.items() if n.startswith(errors) and v}
    if sidecar.url else None,
}))
"""


@pytest.mark.exhaustive
def test_workers_and_the_sidecar_have_their_ports(run_dir, tmp_path):
    """
    ``uvicorn --workers 4`` and ``jaxmon exporter`` side by side: the agents leave the
    sidecar's port alone, it sees them all, and reports none of them as broken when they
    are stopped. Uvicorn's workers end by the signal, and so leave their sockets.
    """
    alone = ("unshare", "--user", "--map-root-user", "--net")
    if (
        not shutil.which("unshare")
        or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no network namespaces here")
    (tmp_path / "app.py").write_text(APP)
    done = subprocess.run(
        [*alone, sys.executable, "-c", SITE, str(WORKERS)],
        env=clean_environ(run_dir, PYTHONPATH=f"{ROOT}:{tmp_path}"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    assert found["taken"] == [9466, 9468, 9469, 9470]
    assert found["url"] == "http://127.0.0.1:9467"
    assert found["errors"] == {}
    assert [line for line in found["log"] if "broken" in line] == []
