"""
Rows about the directory where agents and sidecar meet, and who comes and goes there.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.agents import agent_up, good, path, process, sidecar_of, whole
from tests.faults.matrix import Area
from tests.faults.stage import MAIN, Page, Stage, errors, success
from tests.helpers.processes import freeze


AREA = Area("agent")

# A thousand of them in one process.
MANY = """
import selectors, socket, sys
directory, count = sys.argv[1], int(sys.argv[2])
body = b'# TYPE jaxmon_steps_total counter\\njaxmon_steps_total{loop="a"} 1\\n'
head = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\n"
head += b"Content-Length: %d\\r\\nConnection: close\\r\\n\\r\\n" % len(body)
answer = head + body
selector = selectors.DefaultSelector()
for number in range(count):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{directory}/agent-{number}.sock")
    listener.listen()
    selector.register(listener, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for entry, _ in selector.select():
        client, _ = entry.fileobj.accept()
        with client:
            client.recv(4096)
            client.sendall(answer)
"""


def failures(page: Page) -> list[float]:
    """Return how often each of the failures of agents was counted."""
    name = 'jaxmon_collector_errors_total{collector="agents"'
    return [count for series, count in page.items() if series.startswith(name)]


@AREA.row("socket directory removed while the agent runs", quick=True)
def removed(stage: Stage) -> None:
    agent = process(stage, 0)
    sidecar = sidecar_of(stage, 0)
    # It makes the directory again at once, and the sidecar is to see that it is gone.
    freeze(agent.pid)
    shutil.rmtree(stage.run_dir)
    stage.shows(lambda: agent_up(sidecar.page(), 0) is None, "no agent")
    stage.shows(lambda: success(sidecar.page(), "agents") == 0, "agents success 0")
    reason = sidecar.collector("agents")["reason"]
    stage.expect(reason == "no_run_dir", "reason no_run_dir")
    stage.expect(
        errors(sidecar.page(), "agents", "no_run_dir") >= 1, "no_run_dir counted"
    )
    stage.shows(
        lambda: sidecar.says("does not exist: no agent has run"), "the log says so"
    )
    agent.send_signal(signal.SIGCONT)
    stage.recovers(lambda: whole(sidecar, 0), "the agent to make it again")


@AREA.row("a cleaner removes locks and sockets")
def cleaned(stage: Stage) -> None:
    for worker in (0, 1):
        process(stage, worker)
    sidecar = sidecar_of(stage, 0, 1)
    for one in stage.run_dir.iterdir():
        one.unlink()
    # The page may be of before; a third agent would take a slot that looks free.
    stage.shows(
        lambda: (
            all(path(stage, worker).exists() for worker in (0, 1))
            and whole(sidecar, 0, 1)
        ),
        "both are recreated",
    )
    stage.expect(success(sidecar.page(), "agents") == 1, "agents success 1")
    process(stage, 2)
    stage.recovers(lambda: whole(sidecar, 0, 1, 2))


@AREA.row("clean exit and restart", quick=True)
def ended(stage: Stage) -> None:
    good(stage, 0)
    leaving = process(stage, 1)
    sidecar = sidecar_of(stage, 0, 1)
    leaving.terminate()
    leaving.wait()
    stage.shows(lambda: agent_up(sidecar.page(), 1) is None, "no series of it")
    stage.expect(whole(sidecar, 0), "the other agent is unaffected")
    stage.expect(
        not any(count for count in failures(sidecar.page())), "no failure counted"
    )
    stage.expect(not sidecar.says("agent 1"), "nothing in the log")
    process(stage, 1)
    stage.recovers(lambda: whole(sidecar, 0, 1))


@AREA.row("socket directory becomes unreadable")
def forbidden(stage: Stage) -> None:
    # Root may read everything, unless it gives that up.
    dropped = "-dac_override,-dac_read_search"
    through = () if os.getuid() else ("setpriv", "--bounding-set", dropped)
    if through and not shutil.which("setpriv"):
        pytest.skip("run by root, and there is no setpriv")
    good(stage, 0)
    sidecar = stage.sidecar("--disable", "host", "--disable", "nvml", through=through)
    stage.until(lambda: whole(sidecar, 0), "the agent")
    stage.run_dir.chmod(0)
    stage.later(stage.run_dir.chmod, 0o700)
    stage.shows(lambda: success(sidecar.page(), "agents") == 0, "agents success 0")
    stage.expect(sidecar.collector("agents")["reason"] == "run_dir", "reason run_dir")
    stage.expect(agent_up(sidecar.page(), 0) is None, "no series of agents")
    stage.run_dir.chmod(0o700)
    stage.recovers(lambda: whole(sidecar, 0))


@AREA.row("unrelated files among the sockets")
def other_files(stage: Stage) -> None:
    good(stage, 0)
    (stage.run_dir / "agent-1.sock").write_text("no socket")
    os.mkfifo(stage.run_dir / "agent-2.sock")
    (stage.run_dir / "agent-3.sock").mkdir()
    (stage.run_dir / "agent-4.sock").symlink_to("agent-4.sock")
    (stage.run_dir / "agent-9999999999999999999999.sock").write_text("")
    (stage.run_dir / "secret.sock").write_text("")
    sidecar = sidecar_of(stage, 0)
    page = sidecar.page()
    stage.expect([agent_up(page, n) for n in range(1, 5)] == [0] * 4, "each up 0")
    stage.expect(whole(sidecar, 0), "the real agent is unaffected")


@AREA.row("links to another file in the places of its own", quick=True)
def planted(stage: Stage) -> None:
    victim = stage.directory / "victim"
    victim.write_bytes(b"precious" * 1000)
    victim.chmod(0o400)
    before = victim.stat()
    (stage.run_dir / "agent-0.lock").hardlink_to(victim)
    (stage.run_dir / "agent-1.lock").symlink_to(victim)
    for number, plant in ((2, Path.hardlink_to), (3, Path.symlink_to)):
        for name in ("agent-{}.end", ".agent-{}.sock"):
            plant(stage.run_dir / name.format(number), victim)
    agents = [process(stage, worker) for worker in (2, 3)]
    sidecar = sidecar_of(stage, 2, 3)
    stage.say("agents take slots that are free, and are read")
    page = sidecar.page()
    stage.expect(agent_up(page, 0) is agent_up(page, 1) is None, "the others unused")
    for agent in agents:
        agent.terminate()
        agent.wait()
    after = victim.stat()
    stage.expect(
        victim.read_bytes() == b"precious" * 1000
        and (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns),
        "the file keeps its bytes, permissions and time",
    )


@AREA.row("1,024 agents, the usual limit of descriptors", quick=True)
def many(stage: Stage) -> None:
    count = 1024
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}))\n"
    agents = subprocess.Popen(
        [
            *(sys.executable, "-c", limit.format(4096) + MANY),
            *(str(stage.run_dir), str(count)),
        ],
        stdout=subprocess.PIPE,
    )

    def end() -> None:
        agents.kill()
        agents.wait()
        assert agents.stdout is not None
        agents.stdout.close()

    stage.later(end)
    assert agents.stdout is not None
    agents.stdout.readline()
    sidecar = stage.sidecar(
        "--disable", "host", "--disable", "nvml", main=limit.format(1024) + MAIN
    )

    def all_up() -> bool:
        page = sidecar.page()
        return all(agent_up(page, worker) == 1 for worker in range(count))

    stage.shows(all_up, "all 1,024 up")
    steps = [name for name in sidecar.page() if name.startswith("jaxmon_steps_total")]
    stage.expect(len(steps) == count, "series of each")
