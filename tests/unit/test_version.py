"""The version."""

from importlib import metadata

from jaxmon.version import version


def test_the_distribution_has_the_version_of_the_code() -> None:
    """What pip shows is what a page and ``--version`` say."""
    assert metadata.version("jaxmon") == version()
