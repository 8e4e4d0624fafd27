"""The price table: matching, files, flags, and what the page says."""

import logging
from pathlib import Path

import pytest

from jaxmon.catalog import ACCELERATOR_INFO
from jaxmon.errors import CommandError
from jaxmon.exposition.families import Family, series
from jaxmon_exporter.prices import Prices, from_file, from_flags


H100 = "NVIDIA H100 80GB HBM3"
COST = 'jaxmon_accelerator_cost_dollars_per_hour{{uuid="{}"}}'


def info(uuid: str, model: str) -> Family:
    labels = (uuid, "0", "nvidia", model, "580", "0000:1a:00.0")
    return Family(ACCELERATOR_INFO, [(series(ACCELERATOR_INFO, *labels), 1)])


@pytest.mark.parametrize(
    ("pattern", "model", "price"),
    [
        ("H100", H100, 2.5),
        ("nvidia h100", H100, 2.5),
        ("H100*HBM3", H100, 2.5),
        ("*", H100, 2.5),
        ("A10", "NVIDIA A100-SXM4-80GB", None),
        ("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", 2.5),
        ("T4", "NVIDIA T400", None),
        ("L40", "NVIDIA L40S", None),
        ("v5e", "TPU v5e", 2.5),
        ("H100", "GH100", None),
        ("H.00", H100, None),
        ("NVIDIA*80GB*HBM3", H100, 2.5),
        ("NVIDIA*80GB*HBM", H100, None),
        ("NVIDIA**HBM3", H100, 2.5),
        ("80*B", "80GB 80B", 2.5),
        ("*a" * 200 + "*b", "a" * 400, None),
        ("a" + "*" * 400 + "b", "a" * 400, None),
    ],
)
def test_patterns_fit_whole_words(pattern, model, price):
    """A pattern fits words of a model in any case, and never half a word."""
    assert Prices({pattern: 2.5}).of(model) == price


def test_longest_pattern_wins() -> None:
    """A general price and an exception to it need no order."""
    prices = Prices({"*": 1.0, "H100": 2.0, "H100*NVL": 3.0})
    assert prices.of("NVIDIA H100 NVL") == 3.0
    assert prices.of(H100) == 2.0
    assert prices.of("NVIDIA T4") == 1.0


def test_unknown_model_is_left_out_and_named_once(caplog):
    """Nothing is guessed; one line in the log names the model without a price."""
    prices = Prices({"H100": 2.5})
    page = [info("GPU-a", H100), info("GPU-b", "NVIDIA T4"), info("GPU-c", "NVIDIA T4")]
    with caplog.at_level(logging.WARNING, "jaxmon.exporter"):
        for _ in range(3):
            assert prices.family(page).samples == [(COST.format("GPU-a"), 2.5)]
    assert [record.args for record in caplog.records] == [("NVIDIA T4",)]


def test_accelerators_come_and_go() -> None:
    """The series are those of the accelerators currently exported."""
    prices = Prices({"H100": 2.5})
    assert prices.family([info("GPU-a", H100)]).samples
    assert prices.family([]).samples == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prices.yaml", "H100: 2.5\n'A100 80GB': 1\n"),
        ("prices.csv", "model,dollars\n# ours\nH100,2.5\n\nA100 80GB, 1\n"),
        ("prices.CSV", "\ufeffH100,2.5\r\nA100 80GB,1\r\n"),
    ],
)
def test_files(tmp_path: Path, name: str, text: str) -> None:
    """YAML and CSV give the same table."""
    path = tmp_path / name
    path.write_bytes(text.encode())
    assert from_file(path) == {"H100": 2.5, "A100 80GB": 1.0}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.yaml", b"- H100", "not a mapping"),
        ("a.yaml", b"", "not a mapping"),
        ("a.yaml", b"{", "not YAML"),
        ("a.yaml", b"1: 2", "not a mapping"),
        ("a.yaml", b"H100: cheap", "expected a model and a price"),
        ("a.yaml", b"H100: true", "expected a model and a price"),
        ("a.yaml", b"H100: .nan", "expected a model and a price"),
        ("a.yaml", b"H100: -1", "expected a model and a price"),
        ("a.yaml", b"H100: .inf", "expected a model and a price"),
        ("a.yaml", b"H100: [1]", "expected a model and a price"),
        ("a.yaml", b"\xff\xfe\x00", "not UTF-8"),
        ("a.csv", b"H100", "line 1: expected model,dollars"),
        ("a.csv", b"H100,1\nT4,1,2", "line 2: expected model,dollars"),
        ("a.csv", b",2", "expected a model and a price"),
        ("a.csv", b"#" * (1 << 20) + b"#", r"too large \(limit 1 MiB"),
        ("a.csv", b"H100," + b"1" * 200_000, "field larger than field limit"),
        ("a.csv", b'"H100,1\n', "line 1: expected model,dollars"),
        ("a.yaml", b"[" * 3000, r"nested too deeply \(limit 32 levels"),
        ("a.yaml", b"H100: 2024-13-45", "expected a model and a price"),
        ("a.yaml", b"H100: !!int x", "expected a model and a price"),
        ("a.yaml", b"{[a]: 1}", "not a mapping"),
        ("a.yaml", b"H100: &a [*a]", "too many values"),
        ("a.yaml", b"H100: 1e99999", "expected a model and a price"),
        ("absent.csv", None, "No such file"),
        ("a.yaml", b"H100: 1\nH100: 2", "'H100': '2': duplicate price"),
        ("a.csv", b"H100,1\nH100 ,2", "'H100 ': '2': duplicate price"),
        ("a.yaml", b"a: " + b"[" * 100_000, r"nested too deeply \(limit 32 levels"),
        ("a.yaml", b"{" * 100_000, r"nested too deeply \(limit 32 levels|not YAML"),
        ("a.yaml", b"H100: !!int abc", "expected a model and a price"),
        ("a.yaml", b"H100: !!float 1e999", "expected a model and a price"),
        ("a.yaml", b"H100: !!binary MQ=x=", "expected a model and a price"),
        ("a.yaml", b"H100: !!python/name:os.system", "expected a model and a price"),
        ("a.yaml", b"H100: 2026-01-01", "expected a model and a price"),
        ("a.yaml", b"H100: " + b"9" * 5000, "expected a model and a price"),
        ("a.yaml", b"H100: &a [*a]", "too many|not YAML"),
        ("a.yaml", b"? [a]\n: 1", "not a mapping"),
        ("a.yaml", b"<<: {H100: 1}", "not a mapping"),
        ("a.yaml", b"2026-01-01: 1", "not a mapping"),
        ("a.yaml", b"H100: 1\x00", "non-printable"),
        ("a.csv", b'H100,"' + b"1" * 200_000, "field larger than"),
        ("a.csv", b"H100,1e999", "expected a model and a price"),
        (".", None, "directory"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, content, said):
    """A table that cannot be used ends the command with the reason."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandError, match=said):
        from_file(path)


def test_flags() -> None:
    """Models may hold any character, the price stands after the last sign."""
    assert from_flags(["H100=2.5", "a=b=1"]) == {"H100": 2.5, "a=b": 1.0}
    for wrong in ("H100", "H100=", "=1", "H100=x", "H100=-1", "H100=nan"):
        with pytest.raises(CommandError, match="such as H100"):
            from_flags([wrong])
