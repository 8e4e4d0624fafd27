"""Writing generated files, and noticing that those in place differ."""

from jaxmon.host.files.whole import check, write_all


ARTIFACTS = {"docs/a.md": "one\ntwo\n", "dashboards/b.json": "{}\n"}


def test_written_files_pass_the_check(tmp_path):
    """What `write` wrote, `check` accepts; a second `write` changes nothing."""
    assert write_all(tmp_path, ARTIFACTS) == ["dashboards/b.json", "docs/a.md"]
    assert (tmp_path / "docs/a.md").read_text() == "one\ntwo\n"
    assert list(check(tmp_path, ARTIFACTS)) == []
    assert write_all(tmp_path, ARTIFACTS) == []


def test_check_reports_a_missing_file_and_writes_nothing(tmp_path):
    """A file that is not there is named, and still not there afterwards."""
    reports = list(check(tmp_path, ARTIFACTS))
    assert reports == ["missing: dashboards/b.json\n", "missing: docs/a.md\n"]
    assert list(tmp_path.iterdir()) == []


def test_check_shows_how_a_file_differs(tmp_path):
    """A changed file is shown as a unified diff from what is to what should be."""
    write_all(tmp_path, ARTIFACTS)
    (tmp_path / "docs/a.md").write_text("one\n2")
    (report,) = check(tmp_path, ARTIFACTS)
    assert report.startswith("changed: docs/a.md\n--- docs/a.md (current)\n")
    assert "\n-2\n\\ no newline at end of file\n+two\n" in report


def test_line_ends_count(tmp_path):
    """Bytes are compared: a file with other line ends is changed."""
    write_all(tmp_path, ARTIFACTS)
    (tmp_path / "docs/a.md").write_bytes(b"one\r\ntwo\r\n")
    assert len(list(check(tmp_path, ARTIFACTS))) == 1
