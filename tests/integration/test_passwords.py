"""Who gets a page and who does not, by password."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest

from jaxmon.errors import CommandError
from jaxmon_exporter import gate
from tests.helpers.processes import until
from tests.helpers.servers import PAGE, TLS, GuardedSite


SECRET = "hunter2"  # noqa: S105 - a password of nobody


@pytest.fixture
def site(tmp_path: Path) -> Iterator[GuardedSite]:
    with ExitStack() as stack:
        yield GuardedSite(tmp_path, stack)


@pytest.fixture(scope="module")
def bcrypt() -> ModuleType:
    found: ModuleType = pytest.importorskip("bcrypt")
    return found


@pytest.fixture(scope="module")
def users(bcrypt: ModuleType) -> str:
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(5)).decode()
    return f"basic_auth_users:\n  alice: {hashed}\n"


def test_a_password_lets_in_and_a_wrong_one_does_not(
    site: GuardedSite, users: str
) -> None:
    """The right password gets the page; anything else gets 401 and nothing of it."""
    site.serve(users)

    assert site.get(user=("alice", "right"))[:2] == (200, PAGE)
    for bad in (("alice", "wrong"), ("bob", "right"), ("", ""), ("alice", "")):
        status, body, headers = site.get(user=bad)
        assert (status, headers["WWW-Authenticate"]) == (401, "Basic")
        assert PAGE not in body
    assert site.get()[0] == 401
    assert site.get(Authorization="Bearer right")[0] == 401
    for broken in ("Basic !!!", "Basic \xe9", "Basic 4pi=", "Basic", "\xe9"):
        assert site.get(Authorization=broken)[0] == 401
    assert site.get(user=("alice", "right" + "\0"))[0] == 401


def test_probes_need_no_password(site: GuardedSite, users: str) -> None:
    """A kubelet has none, and the endpoint reveals nothing."""
    site.serve(users)
    assert site.get("/-/healthy")[0] == 200


def test_a_slow_hash_is_paid_once(
    site: GuardedSite, users: str, bcrypt: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passwords are remembered until the file changes; unknown names cost a hash."""
    checked: list[bytes] = []
    check = bcrypt.checkpw

    def counting(password: bytes, hashed: bytes) -> bool:
        checked.append(password)
        return bool(check(password, hashed))

    monkeypatch.setattr(bcrypt, "checkpw", counting)
    site.serve(users)
    for _ in range(3):
        site.get(user=("alice", "right"))
        site.get(user=("alice", "wrong"))
        site.get(user=("nobody", "guess"))
    assert checked == [b"right", b"wrong", b"guess"]

    changed = bcrypt.hashpw(b"wrong", bcrypt.gensalt(4)).decode()
    site.path.write_text(f"basic_auth_users: {{alice: {changed}}}\n")
    assert site.get(user=("alice", "wrong"))[0] == 200
    assert site.get(user=("alice", "right"))[0] == 401


def test_guesses_do_not_make_a_right_password_slow(site, users, bcrypt, monkeypatch):
    """However many wrong ones are remembered, who is known is not checked again."""
    checked: list[bytes] = []
    check = bcrypt.checkpw

    def counting(password: bytes, hashed: bytes) -> bool:
        checked.append(password)
        return password == b"right" and bool(check(password, hashed))

    monkeypatch.setattr(bcrypt, "checkpw", counting)
    site.serve(users)
    site.get(user=("alice", "right"))
    for number in range(2 * gate._REMEMBERED):
        assert site.get(user=("alice", f"guess {number}"))[0] == 401
    assert site.get(user=("alice", "right"))[0] == 200
    assert checked.count(b"right") == 1
    assert len(site.gate._checked) <= gate._REMEMBERED


def test_a_change_that_cannot_be_used_changes_nothing(site, users, caplog):
    """A broken file, and one that switches TLS on, are logged once; passwords stay."""
    site.certify()
    site.serve(users)
    for text in ("basic_auth_users: {alice: right}", TLS + users):
        caplog.clear()
        site.path.write_text(text)
        assert site.get(user=("alice", "right"))[0] == 200
        assert site.get()[0] == 401
        assert len(caplog.records) == 1
        assert "keeping the previous configuration" in caplog.text


def test_a_failure_that_nobody_thought_of_changes_nothing(
    site, users, monkeypatch, caplog
):
    """Its kind is reported, its text is not: it may quote the file."""

    def fail(_: object) -> None:
        raise MemoryError(SECRET)

    site.serve(users)
    monkeypatch.setattr(gate, "load", fail)
    site.path.write_text(users + "# changed\n")
    for _ in range(3):
        assert site.get(user=("alice", "right"))[0] == 200
    assert "failed (MemoryError); keeping the previous configuration" in caplog.text
    assert SECRET not in caplog.text
    assert len(caplog.records) == 1


def test_an_order_to_reload_reads_the_file_again(site: GuardedSite, users: str) -> None:
    """Also where its size and times are those of before."""
    site.serve(users)
    before = site.path.stat()
    site.path.write_text(users.replace("alice", "carol"))
    os.utime(site.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    site.gate.reload()
    assert site.get(user=("carol", "right"))[0] == 200
    assert site.get(user=("alice", "right"))[0] == 401


def test_guesses_that_pile_up_are_turned_away(
    site: GuardedSite, users: str, bcrypt: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a bound, guesses get 401 at once; known clients are served meanwhile."""
    check, slow = bcrypt.checkpw, threading.Event()
    site.serve(users)
    assert site.get(user=("alice", "right"))[0] == 200

    def waiting(password: bytes, hashed: bytes) -> bool:
        slow.wait(90)
        return bool(check(password, hashed))

    monkeypatch.setattr(bcrypt, "checkpw", waiting)
    statuses: list[int] = []

    def guess(number: int) -> None:
        statuses.append(site.get(user=("alice", f"guess {number}"))[0])

    threads = [threading.Thread(target=guess, args=(n,)) for n in range(50)]
    for thread in threads:
        thread.start()
    until(lambda: len(statuses) >= 50 - gate._WAITING, "guesses to be turned away")
    assert site.get(user=("alice", "right"))[0] == 200
    slow.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == {401}


def test_headers_are_on_every_response(site: GuardedSite, users: str) -> None:
    """Refusals carry them as well."""
    site.serve(users + "http_server_config: {headers: {X-Frame-Options: deny}}\n")
    for status, user in ((200, ("alice", "right")), (401, None)):
        found = site.get(user=user)
        assert (found[0], found[2]["X-Frame-Options"]) == (status, "deny")


def test_passwords_need_bcrypt(site, users, monkeypatch):
    """Without the package the exporter does not start open: it says what to install."""
    monkeypatch.setitem(__import__("sys").modules, "bcrypt", None)
    with pytest.raises(CommandError, match=r"jaxmon\[web\]"):
        site.serve(users)
