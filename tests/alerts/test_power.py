"""Watts by process and by function, evaluated by the real promtool."""

import pytest

from jaxmon.symptoms.job import DEVICE_TIME
from jaxmon_alerts.overviews.hosts import FUNCTION_POWER, PROCESS_POWER
from tests.alerts.promtool import evaluate, shipped


A = 'job="train",instance="a:1"'
WATTS = 'jaxmon_accelerator_power_watts{{{},uuid="GPU-{}"}}'
USES = 'jaxmon_device_info{{{},worker="{}",device="{}",uuid="{}"}}'


def groups():
    return [one for one in shipped().recording if one["name"] == "jaxmon-power"]


def calls(worker, function, *, rate, sampled, seconds):
    """Return the series of a function: calls and samples a minute, seconds of each."""
    own = f'{A},worker="{worker}",function="{function}"'
    return {
        f"jaxmon_jit_calls_total{{{own}}}": f"0+{rate}x20",
        f"jaxmon_execution_seconds_count{{{own}}}": f"0+{sampled}x20",
        f"jaxmon_execution_seconds_sum{{{own}}}": f"0+{sampled * seconds:g}x20",
    }


def expect(tmp_path, series, name, samples):
    """
    Compare the series called *name* with *samples*: values by worker and function.
    """
    expected = [
        {
            "labels": name
            + "{"
            + A
            + f',worker="{worker}"'
            + (f',function="{function}"' if function else "")
            + "}",
            "value": value,
        }
        for (worker, function), value in samples.items()
    ]
    test = {"expr": name, "eval_time": "20m", "exp_samples": expected}
    evaluate(tmp_path, groups(), series, promql_expr_test=[test])


FLEET = {
    WATTS.format(A, 1): "300+0x20",
    WATTS.format(A, 2): "500+0x20",
    WATTS.format(A, 3): "100+0x20",
    USES.format(A, 0, 0, "GPU-1"): "1+0x20",
    USES.format(A, 0, 1, "GPU-2"): "1+0x20",
    USES.format(A, 1, 0, "GPU-3"): "1+0x20",
    # The CPU of a process has no uuid, and no power.
    USES.format(A, 2, 0, ""): "1+0x20",
}


def test_a_process_draws_what_its_devices_draw(tmp_path):
    """The sum over its GPUs, each once; nothing if no source reports it."""
    series = {**FLEET, WATTS.format(A, 4): "700+0x20"}

    expect(tmp_path, series, PROCESS_POWER, {("0", ""): 800, ("1", ""): 100})


def test_a_device_that_two_sidecars_tell_of_counts_once(tmp_path):
    """Agents may be scraped apart from the sidecar of their devices, or by two."""
    elsewhere = 'job="hosts",instance="a:9467"'
    series = {
        USES.format(A, 0, 0, "GPU-1"): "1+0x20",
        WATTS.format(elsewhere, 1): "300+0x20",
        WATTS.format(elsewhere.replace("9467", "9468"), 1): "300+0x20",
        # One chip with two devices of JAX.
        USES.format(A, 0, 1, "GPU-1"): "1+0x20",
    }

    expect(tmp_path, series, PROCESS_POWER, {("0", ""): 300})


def test_device_time_is_that_of_all_calls(tmp_path):
    """Of 60 calls a minute of 0.25 s, one in ten was sampled: a quarter of the time."""
    series = calls(0, "step", rate=60, sampled=6, seconds=0.25)

    # One delayed sample stands for no more than all of the time.
    series |= calls(0, "other", rate=6000, sampled=6, seconds=1.5)
    expected = {("0", "step"): 0.25, ("0", "other"): 1}
    expect(tmp_path, series, DEVICE_TIME, expected)


@pytest.mark.parametrize("sampled", [3, 60])
def test_functions_divide_the_power_of_their_process(tmp_path, sampled):
    """Functions share it by device time; without samples or calls there is no part."""
    series = {
        **FLEET,
        **calls(0, "step", rate=60, sampled=sampled, seconds=0.5),
        **calls(0, "eval", rate=120, sampled=sampled, seconds=0.0625),
        **calls(0, "idle", rate=0, sampled=0, seconds=1),
        **calls(1, "step", rate=6, sampled=6, seconds=1),
        **calls(2, "step", rate=6, sampled=6, seconds=1),
    }
    expected = {("0", "step"): 640, ("0", "eval"): 160, ("1", "step"): 100}

    expect(tmp_path, series, FUNCTION_POWER, expected)
