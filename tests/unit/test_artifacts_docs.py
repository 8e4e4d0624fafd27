"""The generated documents say what they are generated from."""

from dataclasses import fields

import click
import pytest

from jaxmon.catalog import METRICS, Metric
from jaxmon.host.files.whole import check
from jaxmon.settings import PREFIX, Settings
from tests.helpers.processes import ROOT
from tools import generate, reference


@pytest.fixture(scope="module")
def rendered():
    """Provide all generated files."""
    return generate.render()


def test_committed_documents_are_up_to_date(monkeypatch, rendered):
    """They are what `make generate` writes, whatever the terminal is."""
    monkeypatch.setenv("COLUMNS", "40")
    reports = [*check(ROOT, rendered), *generate.left_over(ROOT, rendered)]
    assert not reports, "".join(["run: make generate\n", *reports])


def test_generate_writes_then_accepts(tmp_path, monkeypatch, rendered, capsys):
    """`--check` fails before the files were written, and passes after."""
    monkeypatch.setattr(generate, "render", lambda: rendered)
    out = ["--out", str(tmp_path)]
    assert generate.main(["--check", *out]) == 1
    before = capsys.readouterr().out
    assert "missing: docs/metrics.md\n" in before
    assert "out of date; run: make generate" in before
    assert generate.main(out) == 0
    assert "docs/metrics.md" in capsys.readouterr().out.splitlines()
    assert generate.main(["--check", *out]) == 0
    # Where every file is generated, what is left over is deleted; elsewhere it stays.
    for directory in ("docs", "dashboards"):
        (tmp_path / directory / "old.txt").write_text("left over")
    assert generate.main(["--check", *out]) == 1
    assert "\nextra: dashboards/old.txt\n" in f"\n{capsys.readouterr().out}"
    assert generate.main(out) == 0
    assert not (tmp_path / "dashboards/old.txt").exists()
    assert (tmp_path / "docs/old.txt").exists()


def test_every_metric_has_a_row():
    """The metrics page names each metric of the catalogue, below its group."""
    text = reference.metrics()
    for metric in METRICS:
        assert f"\n| `{metric.name}` | {metric.kind} |" in text
        assert f"\n## {metric.group}\n" in text


def test_row_of_a_metric():
    """A row shows labels with their closed sets, unit, page, help and buckets."""
    metric = Metric(
        "toy_seconds",
        "histogram",
        "Time spent playing.",
        unit="seconds",
        labels=("toy", "mood"),
        buckets=(0.5, 10.0),
        group="Toys",
        values=(("mood", ("good", "bad")),),
    )
    row = (
        "| `toy_seconds` | histogram | `toy`<br>`mood`: good, bad | seconds | agent "
        "| Time spent playing. Buckets: 0.5, 10. |"
    )
    assert reference.metrics([metric]).endswith(f"\n{row}\n")


@pytest.mark.parametrize("field", fields(Settings), ids=lambda field: field.name)
def test_every_setting_has_a_row(field):
    """The settings page gives variable, default and a sentence for each setting."""
    start = f"| `{field.name}` | `{PREFIX}{field.name.upper()}` |"
    text = reference.settings(click.Command("exporter"))
    (row,) = [line for line in text.splitlines() if start in line]
    assert f"`{field.default!r}`" in row
    assert row.endswith(". |")


def test_options_of_the_sidecar_have_rows():
    """The settings page lists visible options with variable, default and help."""

    @click.command
    @click.option("--port", "-p", default=1, envvar="TOY_PORT", help="TCP port.")
    @click.option("--toy", multiple=True, help="Toy to serve.")
    @click.option("--secret", hidden=True)
    def exporter(port, toy, secret):
        """Serve toys."""

    text = reference.settings(exporter)
    assert "| `--port` | `TOY_PORT` | `1` | TCP port. |\n" in text
    assert "| `--toy` | - | - | Toy to serve. |\n" in text
    assert "secret" not in text


def test_command_page_holds_the_help_of_every_command():
    """Nested commands get a section each; hidden ones get none."""

    @click.group
    def toys():
        """Play with toys."""

    @toys.command
    @click.option("--loud", is_flag=True, help="Make noise.")
    def drum(loud):
        """Play the drum."""

    @toys.command(hidden=True)
    def secret():
        """Stay unseen."""

    text = reference.commands(toys, "toys")
    assert "\n## toys\n\n```text\nUsage: toys [OPTIONS] COMMAND" in text
    assert "\n## toys drum\n\n```text\nUsage: toys drum [OPTIONS]\n" in text
    assert "--loud" in text
    assert "secret" not in text
