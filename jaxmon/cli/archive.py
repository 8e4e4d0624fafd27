"""What the agents on this host know, for a bundle."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import stat
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxmon.cli.findings import facts
from jaxmon.cli.workers import TIMEOUT, AgentProcess, directory_of, pick, running
from jaxmon.errors import CommandError
from jaxmon.facts import endings
from jaxmon.facts.ending import FINISHED, ProcessEnd
from jaxmon.facts.process import Environment, Snapshot, read
from jaxmon.facts.reader import from_json, mapping
from jaxmon.host import disclosure
from jaxmon.host.formats.layout import clean
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.host.http.urls import Secrets
from jaxmon.host.resources import hung
from jaxmon.limits import Limits
from jaxmon.screens.html.page import files_of
from jaxmon.screens.text import explanation
from jaxmon.screens.time_table import stacks
from jaxmon.symptoms.findings import find
from jaxmon.version import version


MOST_BYTES = 64 << 20
"""Maximum size of all files together, before compression."""

_MOST_OF_ONE = 16 << 20


@dataclass
class Archive:
    """Files in *directory*, all of one *moment*, *redacted*, and what is *missing*."""

    directory: str
    moment: float
    redacted: Callable[[str], str] = str
    missing: dict[str, str] = field(default_factory=dict)
    _files: dict[str, bytes] = field(default_factory=dict)

    def add(self, name: str, text: str, *, clean: bool = False) -> None:
        """Add a file, *clean* of secrets or redacted here; too large, it is missing."""
        text = text if clean else self.redacted(text)
        data = text.encode("utf-8", "backslashreplace")
        left = MOST_BYTES - sum(map(len, self._files.values()))
        if len(data) > min(left, _MOST_OF_ONE):
            self.missing[name] = f"too large for the bundle: {len(data):,} bytes"
            return
        self._files[name] = data

    def add_json(self, name: str, document: Any) -> None:
        """Add a JSON document, in ASCII."""
        self.add(name, json.dumps(document, indent=1, default=str) + "\n")

    def names(self) -> list[str]:
        """Return the names of its files."""
        return sorted(self._files)

    def packed(self) -> bytes:
        """Return it as a compressed tar archive; files are for their owner only."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name in self.names():
                data = self._files[name]
                entry = tarfile.TarInfo(f"{self.directory}/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(self.moment)
                archive.addfile(entry, io.BytesIO(data))
        return packed.getvalue()


_FILES = ("proc/meminfo", "proc/loadavg", "proc/uptime", "proc/version")
_PRESSURE = ("cpu", "memory", "io")
_MOST_BYTES = 1 << 16


def host_facts(directories: list[Path]) -> dict[str, Any]:
    """Return facts about this host by name; what cannot be read is absent."""
    system = platform.uname()
    return {
        "jaxmon": version(),
        "host": system.node,
        "system": f"{system.system} {system.release}",
        "machine": system.machine,
        "cores": os.cpu_count(),
        "container": Path("/.dockerenv").exists(),
        "disks": {str(path): disk for path in directories if (disk := _disk(path))},
        "nvidia_driver": _text("/sys/module/nvidia/version"),
        "files": {name: text for name in _FILES if (text := _text(f"/{name}"))},
        "pressure": {
            name: text
            for name in _PRESSURE
            if (text := _text(f"/proc/pressure/{name}"))
        },
    }


def _disk(directory: Path) -> dict[str, int] | None:
    with suppress(OSError):
        usage = shutil.disk_usage(directory)
        return {"total_bytes": usage.total, "free_bytes": usage.free}
    return None


def _text(path: str) -> str:
    with suppress(OSError), Path(path).open(encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_BYTES).strip()
    return ""


_MAX_BYTES = 16 << 20
_WIDTH = 100
_MOST_REPORTS, _MOST_REPORT_BYTES = 5, 1 << 20
# XLA prints them on a thread of the agent, which may be analysing others.
_HLO_SECONDS = 60.0
_MOST_NAME = 80
_REPORT_NAME = r"oom-[\w.-]+\.(?:json|txt)"


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What the agent of a slot returned; *findings* are sentences, the worst first."""

    number: str
    snapshot: Snapshot
    environment: Environment
    findings: tuple[str, ...]


def collect(
    archive: Archive,
    run_dir: Path | None,
    choice: str | None = None,
    *,
    programs: int | None = None,
    limits: Limits | None = None,
) -> list[AgentReport]:
    """
    Add to *archive* and return what each agent says; those that do not respond are
    missing. Milliseconds, and `TIMEOUT` for each page that hangs. Raises
    `CommandError`: *choice* fits none or several.
    """
    try:
        if choice is not None:
            workers = [pick(choice, run_dir, responding=False)]
        elif not (workers := running(run_dir)):
            archive.missing["agents"] = "no instrumented process is running here"
    except CommandError as error:
        if choice is not None:
            raise
        archive.missing["agents"] = error.message
        return []
    lines = [hung.words(worker.pid) for worker in workers if worker.pid is not None]
    hidden = {
        word for line in lines for word in disclosure.hidden(line, announced=True)
    }
    secrets = Secrets(*sorted(hidden), hidden=disclosure.HIDDEN)
    archive.redacted = lambda text: disclosure.forms(secrets.redacted(text))
    responding = [worker for worker in workers if not worker.trouble]
    sockets = {worker.number: worker.socket for worker in responding}
    metrics = fetch_all(sockets, "/metrics", timeout=TIMEOUT, max_bytes=_MAX_BYTES)
    found = [
        _described(archive, worker, metrics[worker.number], limits)
        for worker in responding
    ]
    for worker in workers:
        if worker.trouble:
            _describe_trouble(archive, worker)
        elif programs is not None:
            _add_programs(archive, worker, programs)
    return found


def add_ends(archive: Archive, run_dir: Path | None) -> dict[str, ProcessEnd]:
    """Add and return, by slot, the records of ended processes without a successor."""
    found = endings.ends(directory_of(run_dir))
    for number, end in found.items():
        archive.add_json(f"worker-{number}/end.json", end.as_json())
    return found


def crashes(ends: Mapping[str, ProcessEnd]) -> list[str]:
    """Return a sentence on each of *ends* that crashed or was stopped, latest first."""
    found = [end for end in ends.values() if end.ended != FINISHED]
    found.sort(key=lambda end: -(end.time or 0.0))
    return [disclosure.forms(clean(end.line(None))) for end in found]


def _described(
    archive: Archive,
    worker: AgentProcess,
    metrics: str | FetchError,
    limits: Limits | None,
) -> AgentReport:
    place = f"worker-{worker.number}"
    process = mapping(worker.overview.get("process"))
    overview = {**worker.overview, "process": {**process, "program": worker.program}}
    events = _document(archive, worker, "events")
    environment = _document(archive, worker, "environment")
    archive.add_json(f"{place}/overview.json", overview)
    facts_of_environment = from_json(Environment, environment)
    if facts_of_environment.packages:
        pins = "".join(
            f"{name}=={version}\n"
            for name, version in facts_of_environment.packages.items()
        )
        archive.add(f"{place}/packages.txt", pins)
    if threads := _document(archive, worker, "stacks"):
        archive.add(f"{place}/stacks.txt", "\n".join(stacks(threads, _WIDTH)) + "\n")
    snapshot = read(overview, events, limits)
    findings = find(snapshot, [])
    text = explanation(snapshot, findings, worker=worker.number, width=_WIDTH)
    archive.add(f"{place}/explain.txt", "\n".join(text) + "\n")
    if isinstance(metrics, FetchError):
        archive.missing[f"worker {worker.number}, metrics"] = str(metrics)
    else:
        archive.add(f"{place}/metrics.txt", metrics)
    reported = facts(worker, events, environment, metrics)
    report = files_of(reported._replace(redacted=archive.redacted, limits=limits))
    archive.add(f"{place}/summary.json", report.summary, clean=True)
    archive.add(f"{place}/report.html", report.page, clean=True)
    _add_reports(archive, worker, snapshot.errors.oom_reports)
    verdicts = tuple(finding.verdict for finding in findings)
    return AgentReport(worker.number, snapshot, facts_of_environment, verdicts)


def _describe_trouble(archive: Archive, worker: AgentProcess) -> None:
    name = f"worker {worker.number}"
    archive.missing[name] = worker.trouble
    pid = hung.listener(worker.socket)
    if pid is not None:
        lines = [f"pid {pid} {worker.trouble}", *hung.threads(pid)]
        archive.add(f"worker-{worker.number}/kernel.txt", "\n".join(lines) + "\n")


def _document(archive: Archive, worker: AgentProcess, page: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = worker.fetch(f"/debug/{page}")
    except CommandError as error:
        archive.missing[f"worker {worker.number}, {page}"] = str(error.__cause__)
        return {}
    if found:
        archive.add_json(f"worker-{worker.number}/{page}.json", found)
    return found


def _add_reports(archive: Archive, worker: AgentProcess, paths: Sequence[str]) -> None:
    # A report is data, and beside it there is one to read.
    for data in map(Path, paths[-_MOST_REPORTS:]):
        for path in (data, data.with_suffix(".txt")):
            try:
                text = _report(path, worker.socket)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                archive.missing[f"worker {worker.number}, {path}"] = reason
            else:
                archive.add(f"worker-{worker.number}/{path.name}", text)


def _add_programs(archive: Archive, worker: AgentProcess, newest: int) -> None:
    try:
        answer = worker.fetch(f"/debug/hlo?newest={newest}", timeout=_HLO_SECONDS)
    except CommandError as error:
        archive.missing[f"worker {worker.number}, HLO"] = error.message
        return
    place = f"worker-{worker.number}/hlo"
    listed: list[dict[str, Any]] = []
    programs = answer.get("programs")
    for program in map(mapping, programs if isinstance(programs, list) else ()):
        # No field of a record: those are one line each.
        function, text = str(program.get("function")), program.get("hlo")
        entry = {"function": function, "finished": program.get("finished")}
        if isinstance(text, str):
            name = re.sub(r"[^\w.-]", "_", function, flags=re.ASCII)[-_MOST_NAME:]
            file = f"{place}/{len(listed) + 1:02}-{name}.txt"
            archive.add(file, text)
            entry["file"] = file
        else:
            entry["omitted"] = str(program.get("omitted"))
        listed.append(entry)
    archive.add_json(f"{place}/programs.json", listed)


def _report(path: Path, socket: Path) -> str:
    """
    Return the text of a report. An agent may name any file, and we may be root: it has
    to be a file of its user, and no link. Raises `OSError`, or `ValueError`: it is
    none.
    """
    if not re.fullmatch(_REPORT_NAME, path.name):
        msg = "not the name of a report"
        raise ValueError(msg)
    owner = socket.lstat().st_uid
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
            msg = "not a file of the process's user"
            raise ValueError(msg)
        return os.read(number, _MOST_REPORT_BYTES).decode(errors="replace")
    finally:
        os.close(number)
