"""Figures and findings of loads that were made up, so that each number is known."""

from array import array

import pytest

from cli.perf import findings
from cli.perf.figures import count_text, distribution, figures
from cli.perf.load import Load
from cli.perf.plan import Objectives, Step
from cli.perf.request import Request

PACE = 0.01
TOKENS = 100


def answered(number, start=0.0, first=0.02, tokens=TOKENS, *, sent=None):
    """A request that was as fast as can be wished."""
    events = array("d", [start + first + PACE * token for token in range(tokens)])
    request = Request(number, start, sent=sent or start, ended=events[-1], events=events, tokens=tokens)
    request.complete = True
    return request


def load_of(requests, **step):
    settings = {"seconds": 10, "concurrency": 4} | step
    return Load(
        Step(**settings), requests, begun=0.0, ended=max(one.ended for one in requests), lags=[0.0, 0.001]
    )


def figures_of(load, *, predictable=False, **limits):
    return figures(load, asked_tokens=TOKENS, predictable=predictable, objectives=Objectives(limits))


def kinds(found):
    return [finding.kind for finding in found]


def test_percentiles_are_numpys():
    np = pytest.importorskip("numpy")
    values = [0.5, 1, 4, 9, 16, 25, 36, 49.5]
    found = distribution(values, scale=1) or {}
    for share in (50, 90, 99):
        assert found[f"p{share}"] == pytest.approx(np.percentile(values, share))
    assert (found["min"], found["max"], found["count"]) == (0.5, 49.5, 8)
    assert (found["avg"], found["std"]) == (pytest.approx(np.mean(values)), pytest.approx(np.std(values)))
    assert distribution([None]) is None
    assert (distribution([3], scale=1) or {})["p99"] == 3


def test_the_figures_of_a_step():
    found = figures_of(load_of([answered(number) for number in range(4)]), time_to_first_token=0.5)
    whole = 0.02 + PACE * (TOKENS - 1)
    assert found["time_to_first_token"]["p50"] == pytest.approx(20)
    assert found["inter_token_latency"]["p99"] == pytest.approx(10)
    assert found["request_latency"]["p90"] == pytest.approx(1000 * whole)
    assert found["output_token_throughput"] == pytest.approx(4 * TOKENS / whole)
    assert found["output_token_throughput_per_user"]["p50"] == pytest.approx(100)
    assert found["request_throughput"] == found["goodput"] == pytest.approx(4 / whole)
    assert found["requests"] == {"expected": None, "sent": 4, "succeeded": 4, "failed": 0, "unfinished": 0}
    assert (found["tokens"]["expected"], found["tokens"]["actual"]) == (400, 400)
    assert found["in_flight"] == {"mean": pytest.approx(4), "max": 4}
    assert sum(found["timeline"]["output_token_throughput"]) * 0.1 == pytest.approx(400)


def test_goodput_counts_those_that_keep_every_objective():
    load = load_of([answered(0), answered(1, first=0.6), answered(2), answered(3)])
    whole = max(one.ended for one in load.requests)
    assert figures_of(load, time_to_first_token=0.5)["goodput"] == pytest.approx(3 / whole)
    assert figures_of(load, time_to_first_token=0.5, inter_token_latency=0.005)["goodput"] == 0
    assert figures_of(load)["goodput"] is None


def test_throughput_is_that_of_the_steps_time():
    """Not of the time in which the last ones run out: they are fewer and fewer."""
    found = figures_of(load_of([answered(0, 0.0), answered(1, 1.01)], seconds=1.51))
    assert found["seconds"] == pytest.approx(1.51)
    assert found["output_token_throughput"] == pytest.approx((TOKENS + 48) / 1.51, rel=0.02)


def test_a_request_that_was_sent_late_is_late():
    """A client that is held up spares no server: latencies begin when a request was to be sent."""
    found = figures_of(load_of([answered(0, 0.0, first=0.52, sent=0.5)]))
    assert found["time_to_first_token"]["p50"] == pytest.approx(520)
    assert found["client"]["send_lag"]["p50"] == pytest.approx(500)
    assert found["client"]["lagged"]
    assert "client lag" in kinds(findings.of_steps([found], {}))


@pytest.mark.parametrize(
    ("text", "lost", "wrong"),
    [
        ("0 1 2 3", 0, 0),
        ("0 1 3", 1, 0),
        ("0 1 2", 1, 0),
        ("0 1 2 2 3", 0, 1),
        ("0 2 1 3", 0, 1),
        ("0 1 2 x", 1, 1),
        ("", 4, 0),
    ],
)
def test_every_token_of_the_mock_is_counted(text, lost, wrong):
    request = Request(0, 0.0, pieces=[text[:3], text[3:]])
    count_text(request, 4)
    assert (request.lost, request.wrong) == (lost, wrong)


def test_nothing_is_found_where_nothing_is_wrong():
    load = load_of([answered(number, start=number * 0.5) for number in range(20)])
    assert findings.of_requests([load], answered(0)) == []
    assert findings.of_steps([figures_of(load)], {"time_to_first_token": 0.5}) == []


def test_one_stalled_stream_in_fifty():
    requests = [answered(number) for number in range(50)]
    requests[7].events = array(
        "d", [when + (1.5 if token >= 50 else 0) for token, when in enumerate(requests[7].events)]
    )
    requests[7].ended += 1.5
    [found] = findings.of_requests([load_of(requests)])
    assert found.kind == "stalls"
    assert found.text.startswith("1 of 50 streams stalled: a pause of up to 1.51 s")


def test_a_pause_of_all_is_told_apart_from_a_stalled_stream():
    requests = [answered(number) for number in range(50)]
    for request in requests:
        request.events = array(
            "d", [when + (1.5 if token >= 50 else 0) for token, when in enumerate(request.events)]
        )
        request.ended += 1.5
    [found] = findings.of_requests([load_of(requests)])
    assert found.kind == "pauses"
    assert found.text.startswith(
        "50 of 50 streams had a pause of up to 1.51 s that most streams in progress shared"
    )


def test_failures_by_code():
    requests = [answered(number) for number in range(10)]
    for number, (code, said) in enumerate([("HTTP 500", "out of luck"), ("E2106", ""), ("E2106", "")]):
        requests[number].fail(code, said)
    load = load_of(requests)
    texts = [found.text for found in findings.of_requests([load])]
    assert texts == [
        "2 of 10 requests failed: E2106",
        "1 of 10 requests failed: HTTP 500 (out of luck)",
    ]
    assert figures_of(load)["failures"] == {
        "E2106": {"count": 2, "said": ""},
        "HTTP 500": {"count": 1, "said": "out of luck"},
    }


def test_lost_tokens():
    requests = [answered(number) for number in range(10)]
    requests[3].lost, requests[4].wrong = 2, 1
    texts = [found.text for found in findings.of_requests([load_of(requests)])]
    assert texts == [
        "2 tokens missing, in 1 of 10 answers",
        "1 token repeated, out of order or unexpected, in 1 of 10 answers",
    ]


def test_a_slow_start_and_later_ones():
    requests = [
        answered(number, start=number * 2.0, first=1.0 if number in (0, 1, 7) else 0.02)
        for number in range(20)
    ]
    found = findings.of_requests([load_of(requests, concurrency=1)], answered(0, first=1.2))
    assert kinds(found) == ["slow start", "late first tokens"]
    assert found[0].text.startswith(
        "the first token of the first 3 requests came after up to 1.20 s; 20 ms is usual"
    )
    assert found[1].text.startswith("1 of 18 first tokens at 1 stream came late, after up to 1.00 s")


def sentence_of(*steps):
    return findings.sentence([figures_of(load) | {"server": None} for load in steps])


def several(number, **how):
    return [answered(one, **how) for one in range(number)]


def test_the_sentence_names_what_gets_slow():
    light = load_of(several(1), concurrency=1)
    assert sentence_of(light, load_of(several(8, first=1.5), concurrency=8)).startswith(
        "First tokens get slow: at 8 streams half of them take longer than 1.50 s (20 ms at 1 stream)."
    )
    assert sentence_of(load_of(several(8, first=1.5), concurrency=8), light).startswith(
        "First tokens get slow: at 8 streams"
    )
    slow = several(8)
    for request in slow:
        request.events = array("d", [when * 4 for when in request.events])
        request.ended *= 4
    assert sentence_of(light, load_of(slow, concurrency=8)).startswith(
        "Tokens get slow: 40 ms apart at 8 streams (10 ms at 1 stream)"
    )
    assert sentence_of(light, load_of(several(8), concurrency=8)).startswith(
        "Nothing gets slow up to 8 streams: "
    )


def test_the_sentence_begins_with_the_lightest_load_of_which_much_was_refused():
    light = load_of(several(1), concurrency=1)
    refused = several(8)
    for request in refused[1:]:
        request.fail("E1305", "full")
    found = sentence_of(light, load_of(refused, concurrency=8), load_of(refused, concurrency=16))
    told = "requests failed at 8 streams; the rest is about the others."
    assert found.startswith(f"More than 1% of the {told} Nothing gets slow up to 16 streams")

    refused[0].fail("E1305", "full")
    assert sentence_of(light, load_of(refused, concurrency=8)).startswith(f"All {told} Of the 1.01 s")


def test_the_sentence_of_one_step_says_where_the_time_goes():
    assert sentence_of(load_of(several(4))).startswith(
        "Of the 1.01 s of a request at 4 streams, the tokens after"
    )
    assert sentence_of(load_of(several(4, first=5))).startswith(
        "The wait for the first token is most of a request"
    )
    failed = several(2)
    for request in failed:
        request.fail("HTTP 500")
    assert sentence_of(load_of(failed)) == "Nothing was answered."


def test_the_sentence_of_a_rate_that_is_too_much():
    requests = [answered(number, start=number * 0.1, first=0.02 + number * 0.05) for number in range(100)]
    assert "The server does not keep up with 10 requests/s" in sentence_of(
        load_of(requests, rate=10, concurrency=None)
    )


def test_objectives_that_are_missed():
    step = figures_of(load_of(several(4, first=0.6)))
    [found] = findings.of_steps([step], {"time_to_first_token": 0.5, "inter_token_latency": 0.05})
    assert found.text == "time to first token p99 is 600 ms at 4 streams, over 500 ms"
