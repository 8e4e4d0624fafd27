"""
Who this process is: versions, platform, devices, place in the cluster.
"""

from __future__ import annotations

import platform
from importlib import import_module
from types import ModuleType
from typing import Any

from jaxmon import catalog
from jaxmon.exposition.families import Family, gauge, series
from jaxmon.version import version


class Identity:
    """
    Reads once what does not change; what needs JAX's backends, when they are up.

    Never starts the backends: the program may still want to configure them.
    """

    def __init__(self, jax: ModuleType) -> None:
        self._jax: Any = jax
        self._build: list[Family] = []
        self._backend: list[Family] = []

    def collect(self) -> list[Family]:
        """
        Return the info metrics known so far.
        """
        if not self._build:
            # Reads a file, so not while the program waits for `instrument`.
            self._build = [gauge(catalog.BUILD_INFO, 1, version())]
        bridge = self._jax._src.xla_bridge  # noqa: SLF001
        if not self._backend and bridge.backends_are_initialized():
            self._backend = self._read()
        return [*self._build, *self._backend]

    def _read(self) -> list[Family]:
        jax = self._jax
        backend = jax.local_devices()[0].client
        info = catalog.DEVICE_INFO
        return [
            gauge(
                catalog.RUNTIME_INFO,
                1,
                jax.__version__,
                import_module("jaxlib").__version__,
                platform.python_version(),
                backend.platform,
                # Several lines on a GPU; the first holds the version.
                backend.platform_version.partition("\n")[0],
            ),
            Family(
                info,
                [
                    (
                        series(
                            info,
                            device.id,
                            device.platform,
                            device.device_kind,
                            device.process_index,
                            "",
                            "",
                        ),
                        1,
                    )
                    for device in jax.local_devices()
                ],
            ),
            gauge(catalog.PROCESS_INDEX, jax.process_index()),
            gauge(catalog.PROCESS_COUNT, jax.process_count()),
        ]
