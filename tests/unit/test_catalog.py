"""House rules of the metric catalogue."""

import ast
import pkgutil
import re
from collections import Counter
from importlib import import_module

from jaxmon import catalog
from jaxmon.catalog import METRICS, Metric
from tests.helpers.processes import PRODUCT, ROOT, each


UNITS = ("seconds", "bytes", "ratio", "celsius", "watts", "joules", "hertz")

# A label multiplies series. Adding one here is a decision: what bounds its values?
LABELS = {
    "against",  # closed set
    "activity",  # named by the program's code
    "cause",  # closed set
    "clock",  # closed set
    "collective",  # closed set
    "collector",  # names in our code
    "compute_instance",  # at most 8 of a GPU instance
    "core",  # of a chip, at most 2
    "cuda",  # one per host
    "device",  # local devices
    "device_kind",  # one per device
    "direction",  # closed set
    "directory",  # given by who runs the sidecar
    "driver",  # one per host
    "dtype",  # those that JAX knows, at most 64
    "ending",  # closed set
    "engine",  # closed set
    "fingerprint",  # the newest one of each function
    "format",  # closed set
    "function",  # at most max_functions, then "other"
    "generation",  # three
    "gpu_instance",  # at most 7 of a GPU
    "hook",  # names in our code
    "host",  # those of a job in trouble, at most 8
    "index",  # one per accelerator
    "instance_start",  # closed set
    "interface",  # network cards, at most 16
    "item",  # named by the program's code
    "jax",  # one per process
    "jaxlib",  # one per process
    "kind",  # closed set
    "label",  # names in our code
    "loop",  # named by the program's code
    "mode",  # names of the kernel
    "model",  # one per accelerator
    "name",  # functions; quantities, named by the program's code
    "operation",  # closed set
    "outcome",  # closed set
    "parent",  # one per MIG device
    "pci_bus_id",  # one per accelerator
    "phase",  # closed set
    "pid",  # chosen by who runs the sidecar, the rest is "other"
    "platform",  # one per device
    "platform_version",  # one per process
    "release",  # one per process
    "process_index",  # one per process
    "profile",  # one per MIG device
    "python",  # one per process
    "queue",  # named by the program's code
    "rank",  # those of a job in trouble, at most 8
    "reason",  # names in our code
    "resource",  # closed set
    "result",  # closed set
    "route",  # templates, at most as many as max_functions
    "run",  # one per process
    "runtime",  # TPU ports, at most 16
    "scope",  # closed set
    "sensor",  # closed set
    "severity",  # closed set
    "signal",  # closed set
    "site",  # names in our code
    "size",  # closed set
    "start",  # closed set
    "state",  # closed set
    "tenant",  # 20 of a process, others are "other"
    "type",  # closed set
    "uuid",  # one per accelerator
    "vbios",  # one per GPU
    "vendor",  # one per accelerator
    "version",  # one per process
    "what",  # closed set
    "work",  # closed set
    "worker",  # slots, reused
    "xid",  # the driver's list
}

each_metric = each({metric.name: (metric,) for metric in METRICS})


def test_names_and_constants_are_unique():
    """No two constants of the catalogue name the same metric."""
    names = Counter(metric.name for metric in METRICS)
    assert [name for name, count in names.items() if count > 1] == []
    assert len(catalog.BY_NAME) == len(METRICS)


@each_metric
def test_name_has_a_prefix_of_its_group(metric):
    """Names are ours, or those under which every Python process is known."""
    foreign = ("process_", "python_")
    assert metric.name.startswith(foreign if metric.group == "Process" else "jaxmon_")
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)


@each_metric
def test_name_says_kind_and_unit(metric):
    """The suffix is `_total` for counters only, before it the base unit."""
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith("_info") == (metric.kind == "info")
    stem = metric.name.removesuffix("_total")
    suffix = stem.rpartition("_")[2]
    assert metric.unit in ("", *UNITS)
    assert metric.unit == (suffix if suffix in UNITS else "")
    # promtool refuses them: they belong to histograms.
    assert not stem.endswith(("_count", "_sum", "_bucket", "_created"))


@each_metric
def test_help_is_a_sentence(metric):
    """Help starts with a capital or a figure, ends with a full stop, fits one line."""
    assert re.fullmatch(r"[A-Z0-9][^\n]{5,118}\.", metric.help)
    assert not metric.help.endswith("..")


@each_metric
def test_labels_are_known_and_bounded(metric):
    """Each label is on the list above, once, and none is reserved."""
    unknown = set(metric.labels) - LABELS
    assert not unknown, "add it to LABELS, with what bounds its values"
    assert len(set(metric.labels)) == len(metric.labels)
    assert not {"le", "quantile", "job", "instance"} & set(metric.labels)


@each_metric
def test_closed_sets_belong_to_labels(metric):
    """Values are listed for labels that the metric has, each value once."""
    for label, values in metric.values:
        assert label in metric.labels
        assert values
        assert len(set(values)) == len(values)


@each_metric
def test_buckets_rise_and_stay_few(metric):
    """Histograms, and only they, have few rising finite bounds: each is a series."""
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))
    most = {catalog.STEP_SECONDS: 57, catalog.REQUEST_SECONDS: 19}
    assert len(metric.buckets) <= most.get(metric, 12)
    assert all(0 < bound < float("inf") for bound in metric.buckets)


@each_metric
def test_few_buckets_are_some_of_all(metric):
    """What agents export can be reduced; bounds of default objectives remain."""
    if "agent" in metric.sources and metric.kind == "histogram":
        assert metric.few
    assert list(metric.few) == sorted(set(metric.few) & set(metric.buckets))
    assert len(metric.few) <= 4
    if metric is catalog.REQUEST_SECONDS:
        assert {0.2, 1.0} <= set(metric.few)


@each_metric
def test_range_is_one(metric):
    """A range has room, and excludes the highest numbers of 32 and 64 bits."""
    low, high = metric.range
    assert low < high or metric.kind == "info"
    asked = metric.group in (
        "Accelerators",
        "NVIDIA GPUs",
        "NVIDIA GPU activity",
        "TPUs",
    )
    if asked and metric.kind != "histogram" and "cost" not in metric.name:
        assert low > -1e3
        assert high < float("inf")
    if asked and metric.kind == "gauge" and metric.unit not in ("", "bytes", "seconds"):
        assert high < (2**32 - 1) / 1000 or metric.unit == "hertz"


@each_metric
def test_metric_has_a_group_and_a_page(metric):
    """The documentation knows where to list it and where it is exposed."""
    assert metric.group
    assert metric.sources in (catalog.AGENT, catalog.SIDECAR, catalog.BOTH)


def test_every_label_on_the_list_is_used():
    """The list of labels does not outlive the metrics that needed them."""
    assert set() == LABELS - {label for metric in METRICS for label in metric.labels}


def test_no_other_module_spells_a_metric_name():
    """Code refers to constants: a renamed metric is renamed in one place."""
    spelled = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.parent != ROOT / "jaxmon" / "catalog"
        for line, name in metric_names(path.read_text())
    ]
    assert spelled == []


def metric_names(source):
    """Return line and name of what looks like a metric in the strings of *source*."""
    names = "|".join(metric.name for metric in METRICS)
    # Packages, and what pytest knows our mark and setting by.
    others = "alerts|dashboards|exporter|budget|report"
    pattern = re.compile(rf"\b(?:jaxmon_(?!(?:{others})\b)\w+|(?:{names})\b)")
    if not pattern.search(source):
        return []
    tree = ast.parse(source)
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }
    return sorted(
        (node.lineno, match[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for match in pattern.finditer(node.value)
        if not (id(node) in docstrings and match[0] in catalog.BY_NAME)
    )


def test_every_constant_is_listed():
    """Each `Metric` of a sheet is in `METRICS`, once, and found in the package."""
    constants = {
        name: value
        for sheet in pkgutil.iter_modules(catalog.__path__, "jaxmon.catalog.")
        for name, value in vars(import_module(sheet.name)).items()
        if isinstance(value, Metric)
    }
    assert set(METRICS) == set(constants.values())
    assert len(METRICS) == len(constants)
    assert {name: getattr(catalog, name) for name in constants} == constants
