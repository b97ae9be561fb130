"""The simulation against what queueing theory says of it, and the command."""

import io
import json
import math
import random
import statistics
from dataclasses import replace

import pytest

from cli.perf.plan import Objectives, Step
from cli.plan.command import Asked, plan
from cli.plan.curve import Curve, Point
from cli.plan.fleet import BALANCES, simulate
from cli.plan.growth import Pace, Start, after_a_jump, fastest_doubling
from cli.plan.sizing import GROUP, Sizing, Wanted
from shared.errors import MeasurementInvalid
from shared.layout import PROJECT_ROOT


def step(streams, first_ms, between_ms):
    first = [first_ms * (0.5 + share / 100) for share in range(101)]
    return {
        "concurrency": streams,
        "requests": {"sent": 9, "succeeded": 9, "failed": 0},
        "time_to_first_token": {"percentiles": first},
        "inter_token_latency": {"avg": between_ms},
    }


def measured(*steps, tokens=101):
    return {"asked": {"output_tokens": tokens}, "steps": list(steps)}


MEASURED = {"asked": {"output_tokens": 101}, "steps": [step(1, 20, 5), step(16, 40, 6), step(64, 100, 10)]}
CURVE = Curve.of(MEASURED)


def flat(places, seconds):
    """A runner whose requests take as long, whatever it does."""
    return Curve((Point(places, seconds / 10, (0.0,) * 101),), 11)


@pytest.fixture
def measurement(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps(MEASURED))
    return str(path)


def asked(measurement, rates=(10,), slo="ttft=200ms,itl=12ms", **start):
    return Asked(measurement, rates, Wanted(Objectives.of(slo)), Start(**start), Pace())


def test_a_load_that_the_runner_refused_is_not_one_that_it_holds():
    refused = step(64, 20, 5) | {"requests": {"sent": 498, "succeeded": 6, "failed": 492}}
    lost_one = step(16, 40, 6) | {"requests": {"sent": 1000, "succeeded": 999, "failed": 1}}
    assert Curve.of(measured(step(1, 20, 5), lost_one, refused)).most_streams == 16
    with pytest.raises(MeasurementInvalid, match="at which 99% of the requests were answered"):
        Curve.of(measured(refused))


def test_between_two_steps_a_curve_is_straight():
    assert CURVE.between_tokens(40) == pytest.approx(0.008)
    assert CURVE.first_token(40, 0.5) == pytest.approx(0.070)
    assert CURVE.between_tokens(1000) == CURVE.between_tokens(64) == 0.010
    assert CURVE.requests_per_second == pytest.approx(64 / (0.1 + 100 * 0.010))


def test_a_request_alone_takes_what_was_measured():
    [request] = simulate(CURVE, 1, [3.0])
    assert request.arrived == 3.0
    assert 0.010 <= request.first_token <= 0.030
    assert request.between_tokens == pytest.approx(0.005)


def test_streams_share_a_runner():
    # Two from the start, each as slow as two are; the second of them alone from the end of the first.
    points = (Point(1, 0.1, (0.0,) * 101), Point(2, 0.2, (0.0,) * 101))
    first, second = simulate(Curve(points, 11), 1, [0.0, 1.0])
    assert first.ended == pytest.approx(1.0)  # ten tokens of 0.1 s, just as the second came
    assert second.ended == pytest.approx(2.0)
    first, second = simulate(Curve(points, 11), 1, [0.0, 0.5])
    assert first.ended == pytest.approx(1.5)  # five at 0.1 s, five at 0.2 s
    assert second.ended == pytest.approx(2.0)  # five at 0.2 s, five at 0.1 s


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_place_waits_as_queueing_theory_says(load):
    """M/D/1: the mean wait is load / (2 (1 - load)) services (Pollaczek and Khinchine)."""
    chance = random.Random(1)
    arrivals, now = [], 0.0
    for _ in range(40_000):
        now += chance.expovariate(load)
        arrivals.append(now)
    requests = simulate(flat(1, 1.0), 1, arrivals)
    waited = statistics.fmean(request.latency for request in requests) - 1
    assert waited == pytest.approx(load / (2 * (1 - load)), rel=0.1)


def test_a_balance_that_looks_waits_least():
    arrivals = list(Step(400, rate=28).offsets())
    waits = {
        balance: statistics.fmean(
            request.first_token
            for request in simulate(flat(8, 1.0), 4, arrivals, balance=balance, output_tokens=[2, 20])
        )
        for balance in BALANCES
    }
    assert waits["least_conn"] < waits["round_robin"] < waits["random"]


def test_a_fleet_is_the_smallest_that_keeps_the_objectives():
    sizing = Sizing(CURVE, Wanted(Objectives.of("ttft=200ms,itl=8ms")))
    assert sizing.possible()
    # 8 ms are kept with up to 40 streams: some 46 requests/s a runner.
    found = sizing.size(200)
    assert 5 <= found.runners <= 7
    assert found.good >= 0.99
    tighter = Sizing(CURVE, Wanted(Objectives.of("ttft=200ms,itl=6ms"))).size(200)
    assert tighter.runners > found.runners


def test_one_place_is_enough_for_a_request_that_meets_no_other():
    sizing = Sizing(Curve.of(measured(step(1, 30, 10), tokens=50)), Wanted(Objectives.of("ttft=50ms")))
    assert sizing.possible()
    found = sizing.size(1)
    assert found.runners > 1
    assert found.good >= 0.99
    assert not Sizing(CURVE, Wanted(Objectives.of("ttft=5ms"))).possible()


def test_a_large_fleet_is_groups_of_a_small_one():
    sizing = Sizing(CURVE, Wanted(Objectives.of("ttft=200ms,itl=8ms")))
    many = sizing.size(100_000)
    assert many.runners > 1000
    assert many.runners == math.ceil(100_000 / sizing.most(GROUP) * GROUP)
    assert many.good >= 0.98


def test_what_starts_sooner_grows_faster():
    def doubling(seconds, reserve):
        pace = Pace(reserve=reserve)
        return fastest_doubling(rate=1000, runner_rate=10, start_seconds=seconds, pace=pace)

    assert doubling(20, 0.25) < doubling(300, 0.25)
    assert doubling(300, 1.0) < doubling(300, 0.25)
    assert doubling(0, 2.0) == 1  # all that is needed is there
    cold, cached = (
        after_a_jump(rate=100, by=1.5, runner_rate=10, start_seconds=seconds, pace=Pace())
        for seconds in (300, 30)
    )
    # Until then 25 requests a second have no place: 50 more, for which 2 or 3 runners of 13 are there.
    assert cold.requests > cached.requests > 0
    assert cold.seconds - cached.seconds == pytest.approx(270, abs=30)


def test_the_pace_is_that_of_the_manifest():
    text = (PROJECT_ROOT / "deploy/kubernetes/overlays/autoscaling/autoscaler.yaml").read_text()
    pace = Pace()
    assert f"{{type: Percent, value: {pace.share * 100:.0f}, periodSeconds: {pace.period:.0f}}}" in text
    assert f"{{type: Pods, value: {pace.runners}, periodSeconds: {pace.period:.0f}}}" in text
    assert f"stabilizationWindowSeconds: {pace.window:.0f}\n" in text


def test_it_is_told_to_people_and_to_programs(measurement, capsys):
    ask = asked(measurement, (10, 1000), pull=60, weights=45, load=25)
    assert plan(ask, as_json=False) == 0
    text = capsys.readouterr().out
    assert "10 requests/s: 1 runner, 1 GPU " in text
    assert "starts from nothing (130 s)" in text
    assert "starts from the cache (25 s)" in text
    assert plan(ask, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert [rate["requests_per_second"] for rate in told["rates"]] == [10, 1000]
    assert told["rates"][1]["runners"] > GROUP
    assert told["rates"][1]["growth"]["cold"]["doubles_in_minutes"]


def test_the_page_has_what_is_computed_for_its_example(tmp_path, capsys):
    """It had figures of another example."""
    page = " ".join((PROJECT_ROOT / "docs/scaling.md").read_text().split())
    example = tmp_path / "one.json"
    example.write_text(json.dumps(measured(step(1, 30, 7), step(256, 260, 22), tokens=256)))
    start = {"pull": 90, "weights": 60, "load": 30}

    def computed(rates, slo="ttft=500ms,itl=25ms", balance="least_conn"):
        ask = asked(str(example), rates, slo, **start)
        assert plan(replace(ask, wanted=replace(ask.wanted, balance=balance)), as_json=True) == 0
        return json.loads(capsys.readouterr().out)["rates"]

    rates = computed((10, 1000, 100_000))
    for rate in rates:
        cells = [
            f"{rate['requests_per_second']:,.0f}",
            f"{rate['runners']:,}",
            f"{rate['with_reserve']:,}",
            f"{rate['utilization']:.0%}",
            f"{rate['time_to_first_token_p99']:.0f} ms",
        ]
        assert f"| {' | '.join(cells)} |" in page
    assert plan(asked(str(example), (10, 1000, 100_000), "ttft=500ms,itl=25ms", **start), as_json=False) == 0
    runner, _, *first = capsys.readouterr().out.splitlines()[:4]
    assert all(" ".join(line.split()) in page for line in (runner, *first))
    least, [random_] = rates[1], computed((1000,), balance="random")
    first, whole = (
        [one[name] for one in (random_, least)] for name in ("time_to_first_token_p99", "request_latency_p99")
    )
    assert random_["runners"] == least["runners"] == 26
    assert f"is {first[0]:.0f} ms to the first token and {whole[0] / 1000:.1f} s for a whole" in page
    assert f"instead of {first[1]:.0f} ms and {whole[1] / 1000:.1f} s." in page
    assert "With 17 ms between two tokens as the objective, the load needs two more runners." in page
    assert computed((1000,), "ttft=500ms,itl=17ms")[0]["runners"] == 28
    cold, cached = least["growth"]["cold"], least["growth"]["cached"]
    jumps = [one["jump_by_1.5"] for one in (cold, cached)]
    for values in (
        [f"{one['seconds']:.0f}" for one in jumps],
        [f"{one['requests']:,.0f}" for one in jumps],
        [f"{one['doubles_in_minutes']:.0f} min" for one in (cold, cached)],
    ):
        assert f" | {' | '.join(values)} |" in page


def test_objectives_that_no_runner_keeps_are_told(measurement, capsys):
    assert plan(asked(measurement, slo="itl=4ms"), as_json=False) == 1
    assert "no number of runners meets them" in capsys.readouterr().out


def test_whether_an_idle_runner_meets_them_is_not_told_by_a_load(tmp_path, capsys):
    path = tmp_path / "loaded.json"
    path.write_text(json.dumps(measured(step(16, 40, 6))))
    assert plan(asked(str(path), slo="itl=4ms"), as_json=False) == 1
    assert (
        "Already at 16 streams, too many requests miss the objectives: measure lighter"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("{}", "it is not what `cog-triton perf --json` writes[.]"),
        ("[]", "it is not what `cog-triton perf --json` writes[.]"),
        (json.dumps({**MEASURED, "interrupted": True}), "Ctrl-C interrupted it, so that loads are missing or cut short"),
        *[
            (json.dumps(MEASURED | wrong), "it is not what `cog-triton perf --json` writes[.]")
            for number in (math.inf, math.nan, -1, 0, "1", None)
            for wrong in ({"asked": {"output_tokens": number}}, {"steps": [step(number or 0, 20, 5)]}, {"steps": [step(1, 20, number or -1)]})
        ],
        (json.dumps(MEASURED | {"steps": [step(1, 0, 5)]}), "it is not what `cog-triton perf --json` writes[.]"),
        (json.dumps({**MEASURED, "steps": []}), "it has no load with a fixed number of streams at which 99%"),
        (json.dumps({**MEASURED, "steps": [{**step(1, 1, 1), "concurrency": None}]}), "it has no load with a fixed number of streams at which 99%"),
        (json.dumps(measured({**step(1, 1, 1), "time_to_first_token": None})), "its answers came whole, as with --output_method wait, so no first token was seen"),
        ("1" * 5000, "a number in it has too many digits"),
        (json.dumps(measured(step(1_000_000, 1, 1))), "it is not what `cog-triton perf --json` writes"),
        (json.dumps(measured(step(10**400, 1, 1))), "it is not what `cog-triton perf --json` writes"),
        (json.dumps(measured(step(1, 1, 1), tokens=10**400)), "it is not what `cog-triton perf --json` writes"),
        (json.dumps(measured(step(0, 1, 1))), "it is not what `cog-triton perf --json` writes"),
        (json.dumps(measured(step(1, 0, 1))), "it is not what `cog-triton perf --json` writes"),
        (json.dumps(measured(step(1, -1, 1))), "it is not what `cog-triton perf --json` writes"),
        (json.dumps(measured(step(1, math.nan, 1))), "it is not what `cog-triton perf --json` writes"),
        (json.dumps(measured(step(1, 1, math.inf))), "it is not what `cog-triton perf --json` writes"),
        (json.dumps(measured(step(1, 1, 1), tokens=math.inf)), "it is not what `cog-triton perf --json` writes"),
    ],
)  # fmt: skip
def test_what_is_no_measurement_is_refused(tmp_path, content, reason):
    path = tmp_path / "one.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(MeasurementInvalid, match=reason):
        plan(asked(str(path)), as_json=True)


def test_what_comes_through_a_pipe_is_called_stdin(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("x"))
    with pytest.raises(MeasurementInvalid, match=r": stdin cannot be used for planning: it is not JSON"):
        plan(asked("-"), as_json=True)


def test_what_never_ends_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "one.json"
    with path.open("wb") as file:
        file.truncate(1 << 36)
    with pytest.raises(MeasurementInvalid, match="it is not JSON"):
        plan(asked(str(path)), as_json=True)
