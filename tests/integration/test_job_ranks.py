"""The sidecar's ``/job``: who gets it, and what it keeps of the ranks of its host."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jaxmon.agent.end_writer import EndWriter
from jaxmon.catalog.sidecar import GPU_CLOCK_EVENT_ACTIVE
from jaxmon.cli.main import main
from jaxmon.errors import CommandError
from jaxmon.exposition.families import Family, series
from jaxmon.facts.ending import CRASHED, FINISHED, RUNNING, State
from jaxmon.facts.host import host
from jaxmon.host.http.server import Response, Server
from jaxmon_exporter.options import SidecarOptions
from jaxmon_exporter.ranks import HostSources, throttled
from jaxmon_exporter.service import Service
from tests.job.ranks import report, waiting
from tests.job.served import agent, ranks_of, read, sidecar


def why(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["job", "why", *arguments])


def test_ranks_are_served_only_if_that_is_enabled_and_safe(run_dir: Path) -> None:
    """Without protection, on an address that others reach, the sidecar refuses."""
    for address in ("::", "0.0.0.0"):  # noqa: S104 - it is refused
        with pytest.raises(CommandError, match=r"--web-config.*--host 127\.0\.0\.1"):
            Service(SidecarOptions(host=address, run_dir=run_dir, peer_access=True))
    with sidecar(run_dir) as address:
        done = why("--targets", address)
    assert done.exit_code == 3
    assert "start it with --peer-access" in " ".join(done.output.split())


def test_with_a_password_it_may_listen_everywhere(run_dir, tmp_path, stack):
    """The command sends the password, and says so if it is not accepted."""
    bcrypt = pytest.importorskip("bcrypt")
    hashed = bcrypt.hashpw(b"right-password", bcrypt.gensalt(5)).decode()
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users:\n  ops: {hashed}\n")
    Service(SidecarOptions(run_dir=run_dir, peer_access=True, web_config=web))
    agent(stack, run_dir, 0, report(0))
    password = tmp_path / "password"
    with sidecar(run_dir, peer_access=True, web_config=web) as address:
        assert why("--targets", address).exit_code == 3
        for text, code in (("right-password", 1), ("wrong-password", 3)):
            password.write_text(text)
            login = ("--user=ops", f"--password-file={password}", "--after=10")
            done = why("--targets", address, *login)
            assert done.exit_code == code, done.output
            assert text not in done.output


def test_that_no_failure_is_known_is_not_that_there_is_none(run_dir, stack):
    """As long as a rank or a host is missing, the exit code says so."""

    def examined(targets: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["job", "post-mortem", "--targets", targets])
        return done.exit_code, done.output

    for slot, rank in enumerate(waiting(3, age=0.1)):
        agent(stack, run_dir, slot, rank)
    with sidecar(run_dir, peer_access=True) as address:
        code, said = examined(address)
        assert (code, "NO FAILURE KNOWN" in said) == (3, True)
    agent(stack, run_dir, 3, report(3, age=0.1))
    with sidecar(run_dir, peer_access=True) as address:
        code, said = examined(address)
        assert (code, "NO FAILURE" in said) == (0, True)
        code, said = examined(f"{address},127.0.0.1:1")
        assert (code, "1 of 2 hosts did not answer" in said) == (3, True)


def test_a_process_is_reported_as_it_was_last(run_dir: Path, stack: ExitStack) -> None:
    """One that has died, or does not respond, still has a host, a step and a line."""
    now = [100.0]
    ranks = ranks_of(run_dir, stack, clock=lambda: now[0])
    first = agent(stack, run_dir, 0, report(0, age=1.0))
    agent(stack, run_dir, 1, {"pid": 7})
    [one, other] = read(ranks)["ranks"]
    assert (one["index"], one["trouble"], one["ended"]) == (0, "", "")
    assert other["pid"] == 7

    first.rank = "x" * (1 << 17)
    now[0] += 5.0
    one = read(ranks)["ranks"][0]
    assert (one["index"], one["since_seconds"]) == (0, 5.0)
    assert "larger than 65536 bytes" in one["trouble"]

    # A cleaner removes it, and the agent recreates it within seconds, if it lives.
    (run_dir / "agent-0.sock").unlink()
    now[0] += 5.0
    one = read(ranks)["ranks"][0]
    assert (one["ended"], one["trouble"]) == ("", "has no socket in the run directory")
    now[0] += 20.0
    read(ranks)
    now[0] += 2.0
    one = read(ranks)["ranks"][0]
    assert (one["ended"], one["ended_seconds"], one["trouble"]) == ("killed", 2.0, "")
    now[0] += 4000.0
    assert [of["pid"] for of in read(ranks)["ranks"]] == [7]


def test_how_a_process_ended_is_read_from_its_slot(run_dir, stack):
    """An orderly end, an uncaught exception and a kill are told apart."""
    ranks = ranks_of(run_dir, stack)
    ends: dict[int, State] = {0: FINISHED, 1: CRASHED, 2: RUNNING}
    agents = [agent(stack, run_dir, slot, report(slot)) for slot in ends]
    lives = [EndWriter(run_dir / f"agent-{slot}.end", 0o600) for slot in ends]
    for one in lives:
        one.begin()
        stack.callback(one.abandon)
    read(ranks)
    for one, running, state in zip(lives, agents, ends.values(), strict=True):
        one.end(state)
        running.server.stop()
    found = [one["ended"] for one in read(ranks)["ranks"]]
    assert found == ["finished", "crashed", "killed"]


def test_a_rank_that_was_read_remains_known_as_such(run_dir, stack):
    """What it left when it failed says less than what it had reported."""
    ranks = ranks_of(run_dir, stack)
    one = EndWriter(run_dir / "agent-0.end", 0o600)
    one.begin()
    running = agent(stack, run_dir, 0, report(0))
    read(ranks)
    one.update({"kind": "exception", "time": time.time()})
    one.end(CRASHED)
    one.abandon()
    running.server.stop()
    for _ in range(3):
        [found] = read(ranks)["ranks"]
        assert (found["index"], found["ended"]) == (0, "crashed")
        assert found["words"]["kind"] == "exception"


def test_stacks_are_kept_when_progress_stops(run_dir: Path, stack: ExitStack) -> None:
    """They are read once for each time, and are there after the process has died."""
    now = [100.0]
    ranks = ranks_of(run_dir, stack, clock=lambda: now[0])
    one = agent(stack, run_dir, 0, report(0, age=1.0))
    read(ranks)
    assert one.asked == []
    for _ in range(3):
        now[0] += 20.0
        one.rank = report(0, age=now[0] - 105.0)
        read(ranks)
    assert one.asked == ["stacks"]
    one.rank = report(0, age=0.5)
    read(ranks)
    now[0] += 40.0
    one.rank = report(0, age=30.0)
    read(ranks)
    assert one.asked == ["stacks", "stacks"]

    one.server.stop()
    now[0] += 20.0
    [rank] = read(ranks, stacks=True)["ranks"]
    assert rank["ended"] == "killed"
    assert rank["stacks"]["threads"][0]["stack"] == ["train.py:58 in main"]
    assert "stacks" not in ranks.document(stacks=False)["ranks"][0]


def test_usual_pauses_keep_no_stacks(run_dir: Path, stack: ExitStack) -> None:
    """A job that often pauses for a minute is not looked at after 15 seconds."""
    ranks = ranks_of(run_dir, stack)
    one = agent(stack, run_dir, 0, report(0, age=60.0, usual=60.0))
    read(ranks)
    assert one.asked == []


def test_the_command_finds_its_targets(run_dir, tmp_path, stack, monkeypatch):
    """Lists, Prometheus's files in JSON and YAML, and addresses that return these."""
    for slot, rank in enumerate([*waiting(3), report(3, calls=811, state="python")]):
        agent(stack, run_dir, slot, rank)
    with sidecar(run_dir, peer_access=True) as address:
        groups = [{"targets": [address], "labels": {"rack": "7"}}]
        as_json, as_yaml = tmp_path / "targets.json", tmp_path / "targets.yml"
        as_json.write_text(json.dumps(groups))
        as_yaml.write_text(f"- targets: ['{address}']\n  labels: {{rack: 7}}\n")
        listing = Server({"/sd": lambda _: Response(json.dumps(groups).encode())})
        port = listing.listen_tcp("127.0.0.1", 0)
        listing.start()
        stack.callback(listing.stop)
        for options in (
            ("--targets", address),
            ("--file-sd", str(as_json)),
            ("--file-sd", str(as_yaml)),
            ("--http-sd", f"http://127.0.0.1:{port}/sd?job=train"),
        ):
            done = why(*options)
            assert done.exit_code == 1
            assert "rank 3 (host-0, pid 1003) runs Python" in done.output
        done = why("--targets", f"{address},127.0.0.1:1", "--stacks")
        assert done.exit_code == 1
        assert "1 of 2 hosts did not answer:" in done.output
        assert "ranks 0-3:\n  train.py:58 in main\n" in done.output
        # Without a sidecar, the agents of this host are read.
        monkeypatch.setenv("JAXMON_RUN_DIR", str(run_dir))
        told = why("--targets", address, "--stacks").output
        assert why("--stacks").output == told
        monkeypatch.setenv("JAXMON_RUN_DIR", str(tmp_path))
        assert why().exit_code == 3
        whole = json.loads(why("--targets", address, "--json").output)
        assert whole["state"] == "hung"
        assert whole["jobs"][0]["suspects"][0]["ranks"] == [3]


def test_targets_that_are_none_are_usage_errors(tmp_path: Path) -> None:
    """The error says which one, and what is allowed."""
    bad = tmp_path / "bad.json"
    for text, said in (
        ("{}", "not a list of groups of targets"),
        ('[{"targets": "a:1"}]', "a group without a list of targets"),
        ('[{"targets": ["a b"]}]', "'a b' is not a target; give HOST:PORT"),
        ("[", "not JSON"),
        ("[]", "there are no targets"),
    ):
        bad.write_text(text)
        done = why("--file-sd", str(bad))
        assert done.exit_code == 2
        assert said in " ".join(done.output.split())
    assert why("--targets", "a:99999").exit_code == 2
    assert why("--targets", "a:1", "--user", "ops").exit_code == 2
    done = why("--http-sd", "http://u:a-long-secret@127.0.0.1:1/x")
    assert done.exit_code == 2
    assert "a-long-secret" not in done.output


def test_throttled_gpus_are_served_beside_the_ranks(run_dir, stack):
    """Those that a driver slows down, with reasons; not those that idle."""
    metric = GPU_CLOCK_EVENT_ACTIVE
    active = {
        ("GPU-1", "hw_thermal"): 1,
        ("GPU-1", "sw_power_cap"): 1,
        ("GPU-2", "idle"): 1,
        ("GPU-3", "hw_thermal"): 0,
    }
    family = Family(metric, [(series(metric, *of), on) for of, on in active.items()])
    ranks = ranks_of(
        run_dir, stack, sources=HostSources(gpus=lambda: throttled([family]))
    )
    agent(stack, run_dir, 0, {**report(0), "gpus": ["GPU-1"]})
    [gpu] = host("host-1:9467", read(ranks)).gpus
    assert gpu.uuid == "GPU-1"
    assert gpu.throttled == ("hw_thermal", "sw_power_cap")


def test_ranks_that_are_set_up_alike_share_what_is_sent(run_dir, stack):
    """A setup is sent once for all ranks of a host; a reader gives it to each."""
    for number in range(4):
        setup = {"jax": "0.10.2" if number < 3 else "0.10.1"}
        agent(stack, run_dir, number, report(number, setup=setup))
    page = read(ranks_of(run_dir, stack))
    assert sorted(one["jax"] for one in page["setups"].values()) == ["0.10.1", "0.10.2"]
    found = host("host-1", page)
    assert [one.setup["jax"] for one in found.ranks] == ["0.10.2"] * 3 + ["0.10.1"]
