"""What a process says its programs depend on besides its code."""

import importlib.metadata
from pathlib import Path

import jax

from jaxmon.agent.reports.setup import MountedDirectory, Mounts, Setup
from jaxmon.agent.versions import versions


MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 /export/team /mnt/team rw - nfs4 filer:/vol rw,vers=4.2
31 22 0:41 / /mnt/my\040disk rw - xfs /dev/sdb rw
32 22 0:42 / /mnt/bucket rw master:3 - fuse.gcsfuse my-bucket rw
33 30 0:43 / /mnt/team/local rw - tmpfs tmpfs rw
nonsense
34 22 8:1 / /data rw - ext4 /dev/sdc rw
35 22 0:44 / /data rw - lustre 10.0.0.1@tcp:/fs rw
"""


def root(tmp_path: Path, *, driver: str = "", mounts: str = MOUNTS) -> Path:
    """Return a directory with what is read of the kernel."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(mounts)
    if driver:
        (tmp_path / "sys/module/nvidia").mkdir(parents=True)
        (tmp_path / "sys/module/nvidia/version").write_text(f"{driver}\n")
    return tmp_path


def test_versions_devices_and_settings_are_there(tmp_path: Path) -> None:
    """As the libraries themselves say; a setting that changes is seen to change."""
    setup = Setup(jax, environ={}, root=root(tmp_path, driver="570.86.10"))
    jax.devices()
    found = setup.read()
    assert found["jax"] == importlib.metadata.version("jax")
    assert found["jaxlib"] == importlib.metadata.version("jaxlib")
    assert found["package numpy"] == importlib.metadata.version("numpy")
    assert found["driver"] == "570.86.10"
    assert found["platform"] == "cpu"
    assert found["devices"] == str(jax.local_device_count())
    assert found["jax_enable_x64"] == "False"
    with jax.enable_x64(True):  # noqa: FBT003 - JAX's own
        assert setup.read()["jax_enable_x64"] == "True"
    assert setup.read()["jax_enable_x64"] == "False"


def test_settings_that_cost_time_are_among_versions() -> None:
    """So that two runs with and without one differ; defaults are not listed."""
    usual = versions(jax)
    with jax.debug_nans(True), jax.default_matmul_precision("high"):  # noqa: FBT003 - JAX's own
        found = versions(jax)
    settings = {"jax_debug_nans": "True", "jax_default_matmul_precision": "high"}
    assert found == {**usual, **settings}
    assert not settings.keys() & usual.keys()


def test_flags_are_told_apart_and_harmless_ones_left_out(tmp_path: Path) -> None:
    """Of paths only that there is one; nothing about a host; and no secret."""
    variables = {
        "XLA_FLAGS": "--xla_gpu_x=true --xla_dump_to=/dumps/rank-3 --xla_flag "
        "--xla_gpu_pgle_profile_file_or_directory_path=/h/3 --other=1",
        "LIBTPU_INIT_ARGS": "--xla_tpu_y=2 --tpu_hostname=host-3",
        "NCCL_ALGO": "Ring",
        "NCCL_TUNER_PLUGIN": "/opt/host-3/tuner.so",
        "NCCL_IB_HCA": "mlx5_3",
        "NCCL_DEBUG_FILE": "/logs/nccl.3",
        "NCCL_TOKEN": "hf_0123456789abcdefXYZ",
        "CUDA_VISIBLE_DEVICES": "3",
        "HOSTNAME": "host-3",
    }
    setup = Setup(jax, environ=variables, root=root(tmp_path))
    found = setup.read()
    given = {
        name: value
        for name, value in found.items()
        if name.startswith(("XLA_", "LIBTPU", "NCCL", "CUDA", "HOST"))
    }
    assert given == {
        "XLA_FLAGS --xla_gpu_x": "true",
        "XLA_FLAGS --xla_flag": "true",
        "XLA_FLAGS --xla_gpu_pgle_profile_file_or_directory_path": "(a path)",
        "LIBTPU_INIT_ARGS --xla_tpu_y": "2",
        "NCCL_ALGO": "Ring",
        "NCCL_TUNER_PLUGIN": "(a path)",
        "NCCL_TOKEN": "…",
    }
    variables["XLA_FLAGS"] = "/etc/flags"
    assert setup.read()["XLA_FLAGS"] == "(a file)"


def test_what_is_read_is_bounded(tmp_path: Path) -> None:
    """Long values are cut, and still differ if they do; there are 200 at most."""
    variables = {f"NCCL_{one}": "v" * 5000 for one in range(5000)}
    setup = Setup(jax, environ=variables, root=root(tmp_path))
    found = setup.read()
    assert len(found) == 200
    assert max(map(len, found.values())) <= 100
    name = next(one for one in found if one.startswith("NCCL_"))
    variables[name] = "v" * 200 + "w"
    assert setup.read()[name] != found[name]


def test_where_a_directory_is_is_known_without_touching_it(tmp_path: Path) -> None:
    """
    A directory that hosts share has one name wherever it is mounted; of mounts above
    each other, the innermost and latest counts.
    """
    mounts = Mounts(root(tmp_path))
    expected = {
        "/srv/models/cache": MountedDirectory("/srv/models/cache", "ext4"),
        "/mnt/team/cache/a": MountedDirectory(
            "filer:/vol /export/team/cache/a", "nfs4"
        ),
        "/mnt/team": MountedDirectory("filer:/vol /export/team", "nfs4"),
        "/mnt/teams/cache": MountedDirectory("/mnt/teams/cache", "ext4"),
        "/mnt/my disk/cache": MountedDirectory("/mnt/my disk/cache", "xfs"),
        "/mnt/bucket/x/../y": MountedDirectory("my-bucket /y", "fuse.gcsfuse"),
        "/mnt/team/local/cache": MountedDirectory("/mnt/team/local/cache", "tmpfs"),
        "/data/cache": MountedDirectory("10.0.0.1@tcp:/fs /cache", "lustre"),
    }
    assert {path: mounts.of(path) for path in expected} == expected


def test_without_a_table_of_mounts_the_path_is_all_that_is_known(tmp_path):
    """As in a sandbox that hides it."""
    assert Mounts(tmp_path).of("/cache") == MountedDirectory("/cache", "")
