"""A chat template in a process of its own: what it does wrong fails its own conversation."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner.text import renderer as module
from runner.text.renderer import ChatRenderer
from shared.errors import MessagesInvalid, Overloaded, ShuttingDown, TritonTokenizerError
from tests.support.waiting import wait_for

GREEDY = "{% if messages[0].content == 'much' %}{{ 'x' * 10 ** 11 }}{% endif %}{{ messages[0].content }}"


_SECONDS = 60  # what waits for a busy machine is not what is tested


def message(content):
    return json.dumps([{"role": "user", "content": content}]).encode()


def rendered(directory, use, source=GREEDY):
    async def run():
        if source is not None:
            (directory / "chat_template.jinja").write_text(source)
        renderer = await ChatRenderer.load(directory, _SECONDS)
        try:
            return await use(renderer)
        finally:
            if renderer is not None:
                await renderer.close()

    return asyncio.run(run())


def test_one_that_fills_the_memory(tmp_path):
    async def use(renderer):
        with pytest.raises(MessagesInvalid, match="memory"):
            await renderer.render(message("much"))
        return await renderer.render(message("little"))

    assert rendered(tmp_path, use) == "little"


def test_those_who_wait_are_served_when_the_process_dies(tmp_path):
    async def use(renderer):
        os.kill(renderer._process.pid, signal.SIGSTOP)
        asked = [asyncio.create_task(renderer.render(message(str(n)))) for n in range(100)]
        await asyncio.sleep(0)
        os.kill(renderer._process.pid, signal.SIGKILL)
        texts = await asyncio.gather(*asked, return_exceptions=True)
        return [text for text in texts if not isinstance(text, MessagesInvalid)]

    assert rendered(tmp_path, use) == [str(n) for n in range(1, 100)]


def test_who_comes_while_another_process_starts_gets_its_own_text_and_so_do_those_after(tmp_path):
    async def use(renderer):
        first = renderer._process.pid
        os.kill(first, signal.SIGSTOP)
        fails = asyncio.create_task(renderer.render(message("fails")))
        await asyncio.sleep(0)
        os.kill(first, signal.SIGKILL)
        while renderer._process.pid in (first, None):  # noqa: ASYNC110  it has no event for that
            await asyncio.sleep(0)
        meanwhile = [asyncio.create_task(renderer.render(message(text))) for text in "ab"]
        with pytest.raises(MessagesInvalid):
            await fails
        return [await meanwhile[0], await meanwhile[1], *[await renderer.render(message(t)) for t in "cd"]]

    assert rendered(tmp_path, use) == ["a", "b", "c", "d"]


def test_a_process_that_cannot_be_started_is_told_and_tried_again(tmp_path, monkeypatch):
    async def none(*_args, **_more):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async def use(renderer):
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "create_subprocess_exec", none)
            os.kill(renderer._process.pid, signal.SIGSTOP)
            asked = [asyncio.create_task(renderer.render(message(text))) for text in "ab"]
            await asyncio.sleep(0)
            os.kill(renderer._process.pid, signal.SIGKILL)
            errors = await asyncio.gather(*asked, return_exceptions=True)
            errors += await asyncio.gather(renderer.render(message("c")), return_exceptions=True)
        return [type(error) for error in errors], await renderer.render(message("d"))

    errors, text = rendered(tmp_path, use)
    assert errors == [MessagesInvalid, TritonTokenizerError, TritonTokenizerError]
    assert text == "d"


_INTERRUPTED = """
import os, signal, sys, uvloop
from pathlib import Path
from runner.text.renderer import ChatRenderer

async def run():
    renderer = await ChatRenderer.load(Path(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.killpg(0, signal.SIGINT)
    print(await renderer.render(b'[{"role": "user", "content": "still there"}]'))
    await renderer.close()

uvloop.run(run())
"""


def test_ctrl_c_is_left_to_those_who_wait_for_it(tmp_path):
    """A terminal sends it to all processes of a group: this one answered it with a traceback.

    The loop is that of the front: asyncio's own has more options.
    """
    (tmp_path / "chat_template.jinja").write_text(GREEDY)
    command = [sys.executable, "-c", _INTERRUPTED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=False)
    assert (done.stdout, done.stderr) == ("still there\n", "")


_KILLED = """
import asyncio, os, signal, sys, uvloop
from pathlib import Path
from runner.text.renderer import ChatRenderer

async def run():
    renderer = await ChatRenderer.load(Path(sys.argv[1]), 60)
    asyncio.create_task(renderer.render(b'[{"role": "user", "content": "x"}]'))
    await asyncio.sleep(0.2)
    print(renderer._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

uvloop.run(run())
"""


def test_a_template_that_never_ends_ends_with_who_asked(tmp_path):
    """It read no more questions, and so did not see that there was nobody any more."""
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    source = "{% if messages[0].content == 'x' %}" + endless + "{% endif %}{{ messages[0].content }}"
    (tmp_path / "chat_template.jinja").write_text(source)
    command = [sys.executable, "-c", _KILLED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    status = Path(f"/proc/{int(done.stdout)}/stat")
    wait_for(lambda: not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z")


def test_many_at_once_come_back_in_order(tmp_path):
    async def use(renderer):
        return await asyncio.gather(*(renderer.render(message(str(n))) for n in range(500)))

    assert rendered(tmp_path, use) == [str(n) for n in range(500)]


def test_too_many_at_once_are_refused_as_an_overload(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_WAITING", 3)

    async def use(renderer):
        texts = await asyncio.gather(
            *(renderer.render(message(str(n))) for n in range(5)), return_exceptions=True
        )
        assert texts[:3] == ["0", "1", "2"]
        return texts[3:]

    refused = rendered(tmp_path, use)
    assert [type(error) for error in refused] == [Overloaded, Overloaded]
    assert "3 conversations are waiting for the chat template already" in str(refused[0])


def test_those_who_wait_when_it_is_closed_are_told_why(tmp_path):
    async def use(renderer):
        waiting = asyncio.create_task(renderer.render(message("1")))
        await asyncio.sleep(0)
        await renderer.close()
        with pytest.raises(ShuttingDown):
            await waiting

    rendered(tmp_path, use)


def test_one_that_is_not_valid(tmp_path):
    async def use(_):
        pytest.fail("it cannot be loaded")

    with pytest.raises(TritonTokenizerError, match=r"template is not valid: [^.]+\. If the"):
        rendered(tmp_path, use, "{{ unfinished")


def test_a_model_without_one(tmp_path):
    async def use(renderer):
        return renderer

    assert rendered(tmp_path, use, None) is None


def test_arguments_may_have_any_name(tmp_path):
    async def use(renderer):
        return await renderer.render(message("a"), b'{"messages": [], "self": 1, "tools": null}')

    assert rendered(tmp_path, use) == "a"


def test_what_is_nested_too_deeply_fails_alone(tmp_path):
    async def use(renderer):
        with pytest.raises(MessagesInvalid, match="too much memory"):
            await renderer.render(message("a"), b'{"deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
        return await renderer.render(message("a"))

    assert rendered(tmp_path, use) == "a"


def test_who_leaves_takes_its_conversation_along(tmp_path):
    """They stayed in the queue: the next waited until all of them were rendered."""

    async def use(renderer):
        os.kill(renderer._process.pid, signal.SIGSTOP)
        long = [asyncio.create_task(renderer.render(message("x" * (1 << 20)), sender="x")) for _ in range(20)]
        await asyncio.sleep(0.01)
        for task in long:
            task.cancel()
        await asyncio.gather(*long, return_exceptions=True)
        asked = len(renderer._process._asked)
        os.kill(renderer._process.pid, signal.SIGCONT)
        return asked, await renderer.render(message("hi"), sender="x")

    assert rendered(tmp_path, use) == (1, "hi")


def test_a_short_conversation_does_not_wait_behind_long_ones(tmp_path):
    async def use(renderer):
        ended = []

        async def ask(content, sender):
            await renderer.render(message(content), sender=sender)
            ended.append((len(content), sender))

        long = [asyncio.create_task(ask("x" * (1 << 20), "greedy")) for _ in range(20)]
        await asyncio.sleep(0.01)
        await asyncio.gather(*long, ask("hi", "greedy"), ask("hi", "shy"))
        return ended

    assert {(2, "greedy"), (2, "shy")} <= set(rendered(tmp_path, use)[:3])


def test_one_sender_cannot_fill_the_queue(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MAX_WAITING_BYTES", 1 << 22)

    async def use(renderer):
        work = [renderer.render(message("x" * (1 << 20)), sender="greedy") for _ in range(5)]
        found = await asyncio.gather(
            *work, renderer.render(message("hi"), sender="shy"), return_exceptions=True
        )
        return [type(one) for one in found]

    assert rendered(tmp_path, use) == [str, Overloaded, Overloaded, Overloaded, Overloaded, str]
