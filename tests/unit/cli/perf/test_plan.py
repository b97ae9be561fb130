"""When requests are sent, what they ask for, and what is good enough."""

import json
import statistics
from itertools import pairwise

import pytest

from cli.perf.plan import Objectives, Prompts, Step


def test_constant_arrivals():
    assert list(Step(1, rate=4, arrivals="constant").offsets()) == [0, 0.25, 0.5, 0.75]
    assert Step(3, rate=20, arrivals="constant").expected == 60


def test_poisson_arrivals_are_the_same_each_time_and_keep_the_rate():
    offsets = list(Step(100, rate=50).offsets())
    assert offsets == list(Step(100, rate=50).offsets())
    assert len(offsets) == pytest.approx(5000, rel=0.05)
    gaps = [later - earlier for earlier, later in pairwise(offsets)]
    assert statistics.pstdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.1)  # of an exponential one


def test_no_more_than_so_many():
    assert len(list(Step(100, rate=50, most=7).offsets())) == 7


def test_how_a_load_is_called():
    labels = [
        step.label
        for step in (Step(1, concurrency=1), Step(1, concurrency=8), Step(1, rate=2.5), Step(1, batch=4))
    ]
    assert labels == ["1 stream", "8 streams", "2.5 requests/s", "batches of 4"]


def test_objectives():
    found = Objectives.of("ttft=500ms, itl=0.05s,latency=5s").limits
    assert found == {"time_to_first_token": 0.5, "inter_token_latency": 0.05, "request_latency": 5}


@pytest.mark.parametrize("text", ["", "ttft", "ttft=5", "speed=5ms", "ttft=-1ms", "ttft=1ms;itl=2ms"])
def test_objectives_that_are_none(text):
    with pytest.raises(ValueError, match="is not NAME=500ms"):
        Objectives.of(text)


def test_prompts_differ_and_have_so_many_words():
    prompts = Prompts(words=5)
    assert (prompts[0], prompts[7]) == ("0 a a a a", "7 a a a a")
    assert Prompts(words=1)[3] == "3"


def test_prompts_of_a_file(tmp_path):
    file = tmp_path / "prompts"
    file.write_text('What is this?\n\n{"prompt": "And\\nthis?", "id": 3}\n{"text": "more"}\n')
    prompts = Prompts.of_file(file)
    assert [prompts[number] for number in range(4)] == [
        "What is this?",
        "And\nthis?",
        "more",
        "What is this?",
    ]


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85", "\f", "\v", "\x1c"])
def test_only_the_end_of_a_line_ends_it(tmp_path, inside):
    """JSON lets U+2028 and others stand in strings; texts have form feeds."""
    file = tmp_path / "prompts"
    texts = [f"What{inside}is this?", "And this?"]
    lines = json.dumps({"prompt": texts[0]}, ensure_ascii=False), texts[0], texts[1], ""
    file.write_text("\r\n".join(lines), newline="")
    prompts = Prompts.of_file(file)
    assert [prompts[number] for number in range(4)] == [texts[0], *texts, texts[0]]


def test_a_line_that_is_not_json_is_named(tmp_path):
    file = tmp_path / "prompts"
    file.write_text('What is this?\n{"prompt": "And this?}\n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        Prompts.of_file(file)


@pytest.mark.parametrize("content", ["", "\n\n", '{"question": "x"}', '{"prompt": 3}', "{prompt}"])
def test_prompts_that_are_none(tmp_path, content):
    file = tmp_path / "prompts"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"prompt|is not JSON"):
        Prompts.of_file(file)
