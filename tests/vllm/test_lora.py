"""LoRA adapters, salts of the prefix cache and priorities, in the vLLM engine."""

from __future__ import annotations

import json
import shutil

import pytest

from runner.protocol.engine import FinishReason
from runner.protocol.frames import StepFrame
from tests.vllm.conftest import serving, write_engine
from tests.vllm.lora import RANK, write_adapter
from tests.vllm.model import ARGUMENTS, GREEDY_TOKENS, MAX_AT_ONCE, PROMPTS, VOCABULARY
from tests.vllm.test_engine import IDS, ask, gathered, outputs

FEW = 4


@pytest.fixture(scope="module")
def two_workers(adapters, tmp_path_factory):
    """The driver of an engine with two workers, in which few requests run at once; it has loaded an adapter."""
    scratch = tmp_path_factory.mktemp("two")
    write_adapter(adapters / "unfit", 5, rank=2 * RANK)
    arguments = ARGUMENTS | {"max_num_seqs": FEW}
    made = write_engine(scratch / "engine", tensor_parallel_size=2, engine_args=arguments)
    with serving(made, scratch / "log", adapters) as (_, driver):
        yield driver


def written(driver, prompts, lora=None):
    """Greedy tokens after each prompt."""
    requests = [ask(prompt, GREEDY_TOKENS, lora=lora) for prompt in prompts]
    got = outputs(driver, *requests)
    return [[token for output in got[request.request_id] for token in output.tokens] for request in requests]


def refused(driver, lora):
    request = ask(lora=lora)
    return outputs(driver, request)[request.request_id][-1].error


def test_adapters_change_the_text_as_in_vllms_own_class(engine, lora_references, greedy_reference):
    """On a CPU, vLLM gives the last adapter to requests that have none and share a step with others."""
    some = PROMPTS[:10]
    # Those of both adapters share their steps.
    requests = {
        (lora, n): ask(some[n], GREEDY_TOKENS, lora=lora) for n in range(10) for lora in lora_references
    }
    got = outputs(engine[1], *requests.values())
    for lora, texts in lora_references.items():
        own = [got[requests[lora, n].request_id] for n in range(10)]
        assert [[token for output in one for token in output.tokens] for one in own] == texts
    first, second = lora_references.values()
    assert first != second
    assert greedy_reference[:10] not in (first, second)
    assert written(engine[1], some) == greedy_reference[:10]


def test_one_takes_the_place_of_another_that_nobody_uses(engine, adapters):
    driver, prompt = engine[1], PROMPTS[:1]
    first = written(driver, prompt, "first")
    written(driver, prompt, "team/second")
    third = written(driver, prompt, "third")  # there is room for two
    assert written(driver, prompt, "first") == first != third


def test_an_adapter_whose_files_change_is_another_one(engine, adapters):
    driver, prompt = engine[1], PROMPTS[:1]
    write_adapter(adapters / "changing", 11)
    before = written(driver, prompt, "changing")
    shutil.rmtree(adapters / "changing")
    assert refused(driver, "changing").code == "E1106"
    write_adapter(adapters / "changing", 12)
    assert written(driver, prompt, "changing") != before


@pytest.mark.parametrize(
    "name", ["none", "../engine", "/etc", ".", "", "first/../../x", "link", "no\0name", "x" * 5000]
)
def test_what_is_no_adapter_below_the_folder_is_unknown(engine, adapters, tmp_path, name):
    if name == "link":
        write_adapter(tmp_path / "outside", 1)
        (adapters / "link").symlink_to(tmp_path / "outside")
    if name:
        assert refused(engine[1], name).code == "E1106"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("adapter_config.json", b"{"),
        ("adapter_config.json", json.dumps({"peft_type": "LORA", "r": 512, "target_modules": []}).encode()),
        ("adapter_config.json", b"{}"),
        ("adapter_model.safetensors", b"x" * 100),
        ("adapter_model.safetensors", b""),
    ],
)
def test_one_that_cannot_be_read_ends_nobody_but_its_request(engine, adapters, file, content):
    process, driver = engine
    broken = write_adapter(adapters / f"broken{next(IDS)}", 5)
    (broken / file).write_bytes(content)
    error = refused(driver, broken.name)
    assert error.code == "E2213"
    assert str(adapters) not in str(error)
    assert written(driver, PROMPTS[:1], "first")
    assert process.poll() is None


def test_after_one_that_no_worker_can_use_others_are_loaded_as_before(two_workers):
    """The first answer of a worker that is an error leaves none of another worker for later calls."""
    driver, prompt = two_workers, PROMPTS[:1]
    names = ("first", "team/second", "third")
    before = [written(driver, prompt, name) for name in names]
    for name, text in zip(names, before, strict=True):
        assert refused(driver, "unfit").code == "E2213"
        assert written(driver, prompt, name) == text != [[]]


def test_one_that_fits_nowhere_takes_no_place_from_one_that_is_waited_with(two_workers, adapters):
    """Else the core would read the latter again, in a step, and end when its files are gone."""
    driver, prompt = two_workers, PROMPTS[0]
    write_adapter(adapters / "leaving", 6)
    expected = written(driver, [prompt], "leaving")
    others = [ask(max_tokens=240) for _ in range(FEW)]
    waiting = ask(prompt, GREEDY_TOKENS, lora="leaving", priority=1)
    for request in (*others, waiting):
        driver.submit(request)
    unfit = [ask(lora="unfit") for _ in range(2)]  # as many as are held
    driver.submit(unfit[0])
    first = gathered(driver, {unfit[0].request_id})  # adapters are loaded one at a time: the other's is, too
    shutil.rmtree(adapters / "leaving")
    driver.submit(unfit[1])
    found = first | gathered(driver, {request.request_id for request in (*others, waiting, unfit[1])})
    assert {found[request.request_id][-1].error.code for request in unfit} == {"E2213"}
    assert [[token for output in found[waiting.request_id] for token in output.tokens]] == expected
    assert all(found[other.request_id][-1].finish_reason is FinishReason.LENGTH for other in others)


def test_more_at_the_same_time_than_there_is_room_for_are_refused(engine, adapters):
    driver = engine[1]
    running = [ask(max_tokens=200, lora=lora) for lora in ("first", "team/second")]
    for request in running:
        driver.submit(request)
    waited_for = {request.request_id for request in running}
    last = {}
    while waited_for - last.keys():  # adapters are loaded side by side
        if isinstance(frame := next(driver.frames), StepFrame):
            last |= {output.request_id: output for output in frame.outputs if output.request_id in waited_for}
    assert not [output for output in last.values() if output.finish_reason is not FinishReason.NOT_FINISHED]
    one_more = ask(max_tokens=1, lora="third")
    driver.submit(one_more)
    ids = {one_more.request_id, *waited_for}
    last = {number: own[-1] for number, own in gathered(driver, ids).items()}
    assert last[one_more.request_id].error.code == "E2214"
    assert all(last[request.request_id].finish_reason is FinishReason.LENGTH for request in running)


def test_what_is_kept_of_a_prompt_is_for_its_salt_alone(engine):
    def cached(salt):
        request = ask([7 + number % (VOCABULARY - 7) for number in range(200)], 2, cache_salt=salt)
        return outputs(engine[1], request)[request.request_id][0].cached_tokens

    assert [cached("a"), cached("a"), cached("b"), cached(None), cached("b")] == [0, 128, 0, 0, 128]


def test_of_those_who_wait_the_one_of_the_lower_priority_comes_first(engine):
    """More wait than run at once, and the last that comes has the lowest priority."""
    driver = engine[1]
    crowd = [ask([5] * 200, 50, priority=5) for _ in range(MAX_AT_ONCE * 3)]
    urgent = ask([5] * 200, 50, priority=0)
    for request in (*crowd, urgent):
        driver.submit(request)
    waiting, ended = {request.request_id for request in (*crowd, urgent)}, []
    while waiting:
        frame = next(driver.frames)
        if isinstance(frame, StepFrame):
            now = [o.request_id for o in frame.outputs if o.finish_reason is not FinishReason.NOT_FINISHED]
            ended += now
            waiting -= set(now)
    assert ended.index(urgent.request_id) < len(crowd) - MAX_AT_ONCE
