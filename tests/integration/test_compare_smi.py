"""The comparison with nvidia-smi: a stand-in that agrees, and some that do not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.nvml.gpus import UUID
from tests.helpers.processes import clean_environ


pytest.importorskip("pynvml")

TOOL = Path(__file__).parents[2] / "tools/compare_smi.py"
# What the fake driver's first H100 looks like to nvidia-smi.
LOG = f"""<?xml version="1.0" ?>
<nvidia_smi_log>
  <gpu id="00000000:1A:00.0">
    <uuid>{UUID.format(0)}</uuid>
    <persistence_mode>Enabled</persistence_mode>
    <mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <performance_state>P0</performance_state>
    <pci>
      <pci_gpu_link_info>
        <pcie_gen>
          <max_link_gen>5</max_link_gen><current_link_gen>5</current_link_gen>
        </pcie_gen>
        <link_widths>
          <max_link_width>16x</max_link_width>
          <current_link_width>16x</current_link_width>
        </link_widths>
      </pci_gpu_link_info>
      <replay_counter>3</replay_counter>
    </pci>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
    </clocks_event_reasons>
    <fb_memory_usage>
      <total>81920 MiB</total><reserved>512 MiB</reserved>
      <used>3072 MiB</used><free>78336 MiB</free>
    </fb_memory_usage>
    <bar1_memory_usage><total>131072 MiB</total><used>2 MiB</used></bar1_memory_usage>
    <utilization>
      <gpu_util>37 %</gpu_util><memory_util>11 %</memory_util>
      <encoder_util>0 %</encoder_util><decoder_util>7 %</decoder_util>
      <jpeg_util>N/A</jpeg_util>
    </utilization>
    <ecc_errors>
      <volatile>
        <sram_correctable>8</sram_correctable>
        <sram_uncorrectable_parity>1</sram_uncorrectable_parity>
        <sram_uncorrectable_secded>2</sram_uncorrectable_secded>
      </volatile>
      <aggregate><sram_uncorrectable>30</sram_uncorrectable></aggregate>
    </ecc_errors>
    <remapped_rows>
      <remapped_row_corr>2</remapped_row_corr><remapped_row_unc>1</remapped_row_unc>
      <remapped_row_pending>No</remapped_row_pending>
      <remapped_row_failure>No</remapped_row_failure>
    </remapped_rows>
    <temperature>
      <gpu_temp>40 C</gpu_temp><gpu_temp_tlimit>45 C</gpu_temp_tlimit>
      <memory_temp>55 C</memory_temp>
    </temperature>
    <gpu_power_readings>
      <average_power_draw>123.50 W</average_power_draw>
      <instant_power_draw>131.25 W</instant_power_draw>
      <current_power_limit>700.00 W</current_power_limit>
    </gpu_power_readings>
    <clocks>
      <graphics_clock>1980 MHz</graphics_clock><sm_clock>1965 MHz</sm_clock>
      <mem_clock>2619 MHz</mem_clock><video_clock>1545 MHz</video_clock>
    </clocks>
    <fabric><state>Completed</state></fabric>
  </gpu>
</nvidia_smi_log>
"""


def compared(nvml_library: Path, directory: Path, log: str) -> tuple[int, str]:
    """
    Return exit code and output of the comparison with an nvidia-smi that prints *log*.
    """
    (directory / "log.xml").write_text(log)
    program = directory / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nexec cat {directory / 'log.xml'}\n")
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(TOOL), "--rounds", "2"],
        env=clean_environ(
            PATH=f"{directory}:{os.environ['PATH']}",
            LD_LIBRARY_PATH=str(nvml_library),
            FAKE_NVML_GPUS="1",
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_what_agrees_is_listed(nvml_library: Path, tmp_path: Path) -> None:
    """Values that both report are compared; a missing one is no disagreement."""
    code, out = compared(nvml_library, tmp_path, LOG)
    assert (code, out.splitlines()[-1]) == (0, "all agree")
    assert out.count("2/2") == 38
    uncorrected = "jaxmon_gpu_sram_ecc_errors_total uncorrected"
    assert f"| {uncorrected} volatile | 3 | 3 | 2/2 |" in out
    assert "jaxmon_gpu_engine_utilization_ratio jpeg | 0.03 | - |  |" in out


@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [
        ("3072 MiB", "3584 MiB", "jaxmon_accelerator_memory_used_bytes"),
        ("123.50 W", "123500 W", "jaxmon_accelerator_power_watts"),
        ("1965 MHz", "1980 MHz", "jaxmon_accelerator_clock_hertz sm"),
        (">Active<", ">Not Active<", "jaxmon_gpu_clock_event_active sw_power_cap"),
        ("_corr>2<", "_corr>3<", "jaxmon_gpu_remapped_rows_total corrected"),
    ],
)
def test_what_differs_is_named(nvml_library, tmp_path, ours, theirs, name):
    """A figure in another unit, of another clock, or off by one is a failure."""
    code, out = compared(nvml_library, tmp_path, LOG.replace(ours, theirs))
    assert code == 1
    assert f"{UUID.format(0)}: {name} never agreed" in out.splitlines()[-1]


def test_nothing_to_compare_is_no_success(nvml_library: Path, tmp_path: Path) -> None:
    """An account that cannot be read must not look like agreement."""
    empty = "<nvidia_smi_log></nvidia_smi_log>"
    assert compared(nvml_library, tmp_path, empty)[0] == 1
    strange = f"<l><gpu><uuid>{UUID.format(0)}</uuid></gpu></l>"
    code, out = compared(nvml_library, tmp_path, strange)
    assert code == 1
    assert "only 0 figures could be compared" in out
