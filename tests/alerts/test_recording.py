"""What the recording rules record, evaluated by the real promtool."""

from tests.alerts.promtool import evaluate, shipped


GOOD = 'jaxmon_requests_total{job="web",route="/gen",outcome="success",start="warm"}'
BAD = GOOD.replace("success", "error")
OWN = 'sloth_id="jaxmon-request-error"'
LABELS = (
    f'{{job="web", route="/gen", {OWN}, sloth_service="jaxmon", '
    'sloth_slo="request-error"'
)
CONSTANT = f'{{{OWN}, sloth_service="jaxmon", sloth_slo="request-error"}}'


def groups():
    return [
        one
        for one in shipped().recording
        if one["name"].startswith("jaxmon-slo-request-error")
    ]


def expect(name, labels, value):
    """Return the test that *name* is one series with *value*, after two hours."""
    return {
        "expr": f"round({name}{{{OWN}}}, 0.000001)",
        "eval_time": "120m",
        "exp_samples": [{"labels": labels, "value": value}],
    }


def test_a_busy_hour_weighs_more_in_the_period(tmp_path):
    """
    An hour of 100 requests a minute with 10 % errors, then one of 10 a minute without:
    the period has 9.09 % errors, where the mean of ratios would be 5 %.
    """
    series = {GOOD: "0+90x60 5410+10x60", BAD: "0+10x60 600+0x60"}
    test = {
        "expr": f"round(slo:sli_error:ratio_rate30d{{{OWN}}}, 0.01)",
        "eval_time": "120m",
        "exp_samples": [{"labels": f'{LABELS}, sloth_window="30d"}}', "value": 0.09}],
    }

    evaluate(tmp_path, groups(), series, promql_expr_test=[test])


def test_budgets_follow_from_the_ratio(tmp_path):
    """
    Two errors in ten thousand of one in a thousand are a fifth of the budget; each
    window has that ratio of its own.
    """
    series = {GOOD: "0+9998x120", BAD: "0+2x120"}
    own = f"{LABELS}}}"
    tests = [
        expect("slo:current_burn_rate:ratio", own, 0.2),
        expect("slo:period_burn_rate:ratio", own, 0.2),
        expect("slo:period_error_budget_remaining:ratio", own, 0.8),
        expect("slo:objective:ratio", CONSTANT, 0.999),
        expect("slo:error_budget:ratio", CONSTANT, 0.001),
        expect("slo:time_period:days", CONSTANT, 30),
        *(
            expect(
                f"slo:sli_error:ratio_rate{window}",
                f'{LABELS}, sloth_window="{window}"}}',
                0.0002,
            )
            for window in ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
        ),
    ]

    evaluate(tmp_path, groups(), series, promql_expr_test=tests)


def test_no_errors_leave_the_whole_budget(tmp_path):
    """Without an error series the ratio is 0 and nothing is burnt."""
    tests = [
        expect("slo:period_burn_rate:ratio", f"{LABELS}}}", 0),
        expect("slo:period_error_budget_remaining:ratio", f"{LABELS}}}", 1),
    ]

    evaluate(tmp_path, groups(), {GOOD: "0+100x120"}, promql_expr_test=tests)


def test_no_traffic_is_no_ratio(tmp_path):
    """Where nothing is asked nothing is claimed, neither success nor failure."""
    tests = [
        {"expr": f"{name}{{{OWN}}}", "eval_time": "120m", "exp_samples": []}
        for name in ("slo:sli_error:ratio_rate5m", "slo:sli_error:ratio_rate30d")
    ]

    series = {
        # What an old process counted before it was known is no traffic.
        'jaxmon_uptime_seconds{job="web"}': "90000+60x120",
        GOOD: "5+0x120",
        BAD: "1+0x120",
    }
    evaluate(tmp_path, groups(), series, promql_expr_test=tests)


IDEAL = (
    'jaxmon_ideal_seconds_total{{job="train",instance="{}",function="{}",work="{}"}}'
)
UNKNOWN = 'jaxmon_flops_unknown{{job="train",instance="{}",function="{}",reason="{}"}}'
CALLS = 'jaxmon_jit_calls_total{{job="train",instance="{}",function="{}"}}'


def test_utilization_is_of_processes_whose_calls_are_known(tmp_path):
    """
    Functions add up and processes do not; what a checkpoint computes again is left out,
    and so are processes that call a function of unknown FLOPs, or perhaps do.
    """
    series = {
        # Half of the time at the peak, and a quarter.
        IDEAL.format("a", "step", "model"): "0+24x20",
        IDEAL.format("a", "evaluate", "model"): "0+6x20",
        IDEAL.format("a", "step", "recomputed"): "0+12x20",
        IDEAL.format("b", "step", "model"): "0+15x20",
        # Compiled once, and not called any more.
        UNKNOWN.format("b", "init", "library"): "1x20",
        CALLS.format("b", "init"): "1+0x20",
        IDEAL.format("c", "step", "model"): "0+1x20",
        UNKNOWN.format("c", "generate", "loop"): "1x20",
        CALLS.format("c", "generate"): "0+3x20",
        IDEAL.format("d", "step", "model"): "0+1x20",
        UNKNOWN.format("d", "earlier", "uncounted"): "1x20",
    }
    name = "job:jaxmon_ideal_seconds:avg_model_rate5m"
    test = {
        "expr": f"round({name}, 0.001)",
        "eval_time": "15m",
        "exp_samples": [{"labels": '{job="train"}', "value": 0.375}],
    }
    rules = [one for one in shipped().recording if one["name"] == "jaxmon-overviews"]

    evaluate(tmp_path, rules, series, promql_expr_test=[test])


INSPECTED = (
    'jaxmon_nccl_{}{{job="train",instance="host-{}",worker="0",'
    'collective="AllReduce"{}}}'
)
SMALL, LARGE = (f',size="{size}"' for size in ("under_1MiB", "under_256MiB"))


def test_collectives_are_recorded_by_service_and_latecomers_by_process(tmp_path):
    """
    Bandwidth is bytes by the time of kernels, of all processes; of four processes the
    one whose kernels take half as long arrives late, whatever the size; one that takes
    a little less than the median does not.
    """
    series: dict[str, str] = {}
    for host, seconds in enumerate((6, 12, 11.5, 12)):
        for size in (SMALL, LARGE):
            series |= {
                INSPECTED.format(name, host, size): f"0+{each}x20"
                for name, each in (
                    ("collective_seconds_total", seconds / 2),
                    ("collectives_total", 300),
                    ("bus_bytes_total", 41.5e9 if size == LARGE else 4.15e6),
                )
            }
    own = 'job="train", collective="AllReduce"'
    late = '{job="train", instance="host-0", worker="0", collective="AllReduce"}'
    names: dict[str, list[tuple[str, float]]] = {
        "job:jaxmon_nccl_bus_bytes:bandwidth5m": [
            (f'{{{own}, size="under_1MiB"}}', 800_000),
            (f'{{{own}, size="under_256MiB"}}', 8e9),
        ],
        "worker:jaxmon_nccl_collective_seconds:late_ratio5m": [(late, 0.511)],
    }
    tests = [
        {
            "expr": f"round({name}, 0.001)",
            "eval_time": "16m",
            "exp_samples": [
                {"labels": labels, "value": value} for labels, value in samples
            ],
        }
        for name, samples in names.items()
    ]
    groups = [one for one in shipped().recording if one["name"].endswith("-slow")]
    evaluate(tmp_path, groups, series, promql_expr_test=tests)


def test_a_release_is_compared_with_the_one_beside_it(tmp_path):
    """By the release that each process names: who fails, and who takes longer."""
    kinds = {"v1": (("a", 3, 0, 0.1), ("b", 3, 0, 0.1)), "v2": (("c", 2, 1, 0.4),)}
    series: dict[str, str] = {}
    for release, replicas in kinds.items():
        for host, good, bad, seconds in replicas:
            own = f'job="web",instance="{host}",worker="0"'
            info = f'jaxmon_runtime_info{{{own},release="{release}",jax="0.10.2"}}'
            total = round((good + bad) * 60 * seconds, 6)
            route = f'{own},route="/gen",outcome'
            series |= {
                info: "1x20",
                f'jaxmon_requests_total{{{route}="success"}}': f"0+{good * 60}x20",
                f'jaxmon_requests_total{{{route}="error"}}': f"0+{bad * 60}x20",
                f'jaxmon_request_seconds_sum{{{route}="success"}}': f"0+{total}x20",
            }
    # It names none, and is only counted.
    unnamed = 'job="web",instance="d",worker="0"'
    series[f'jaxmon_runtime_info{{{unnamed},jax="0.10.2"}}'] = "1x20"
    expected = {
        "job:jaxmon_runtime_info:releases": (2, 1, 1),
        "job:jaxmon_requests:served_by_release5m": (6, 3),
        "job:jaxmon_requests:failing_by_release5m": (0, 0.333),
        "job:jaxmon_request_seconds:mean_by_release5m": (0.1, 0.4),
    }
    names = ('release="v1", ', 'release="v2", ', "")
    tests = [
        {
            "expr": f"round({name}, 0.001)",
            "eval_time": "16m",
            "exp_samples": [
                {"labels": f'{{job="web", {of}jax="0.10.2"}}', "value": value}
                for of, value in zip(names, values, strict=False)
            ],
        }
        for name, values in expected.items()
    ]
    rules = [one for one in shipped().recording if one["name"] == "jaxmon-overviews"]
    evaluate(tmp_path, rules, series, promql_expr_test=tests)


def test_the_process_that_waits_most_is_not_lost_among_others(tmp_path):
    """One of three is blocked all the time, the others hardly ever."""
    states = {"a": ("blocked", 60), "b": ("blocked", 3), "c": ("device", 30)}
    series = {
        f'jaxmon_wall_seconds_total{{job="web",instance="{host}",worker="0",'
        f'state="{state}"}}': f"0+{seconds}x20"
        for host, (state, seconds) in states.items()
    }
    test = {
        "expr": "round(job:jaxmon_wall_seconds:most5m, 0.001)",
        "eval_time": "16m",
        "exp_samples": [
            {"labels": '{job="web", state="blocked"}', "value": 1},
            {"labels": '{job="web", state="device"}', "value": 0.5},
        ],
    }
    rules = [one for one in shipped().recording if one["name"] == "jaxmon-overviews"]
    evaluate(tmp_path, rules, series, promql_expr_test=[test])
