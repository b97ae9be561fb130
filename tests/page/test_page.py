"""The runner's page in a browser: a prompt, its answer, its end, errors, and keys."""

import asyncio
from collections import Counter
from contextlib import contextmanager

import pytest
from selenium.webdriver.common.by import By
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from runner.protocol.engine import Statistics
from tests.support.browser import chromium, resize
from tests.support.front import running, words, write_engine
from tests.support.waiting import wait_for

CHAT_TEMPLATE = "{% for m in messages %}9999 {{ m.content }}{% endfor %}"
SECONDS = 60  # a slow machine


class Page:
    def __init__(self, browser, front):
        self.browser, self.front = browser, front
        browser.get(front.url)

    def __getitem__(self, name):
        return self.browser.find_element(By.ID, name)

    def text(self, name):
        return self[name].get_property("textContent")

    def shows(self, name):
        return self[name].is_displayed()

    def fill(self, **fields):
        for name, value in fields.items():
            self[name].clear()
            self[name].send_keys(value)

    def run(self, **fields):
        self.fill(**fields)
        self["run"].click()

    def result(self):
        return wait_for(lambda: self.text("result"), SECONDS)

    def error(self):
        wait_for(lambda: self.shows("error"), SECONDS)
        return self.text("error-code"), self.text("error-text")

    def asked(self):
        """What the engine was asked, besides whether it lives."""
        return [request for request in self.front.client.requests if len(request.input_token_ids) > 1]

    def wait_until_ready(self):
        wait_for(lambda: self.text("status") == "READY", SECONDS)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return write_engine(tmp_path_factory.mktemp("engine") / "engine", CHAT_TEMPLATE)


@contextmanager
def shown(browser, engine, *, console=(), **options):
    """The page of such a runner; its console says nothing but `console`."""
    with running(engine, **options) as front:
        yield Page(browser, front)
        browser.get("about:blank")
        said = [entry["message"] for entry in browser.get_log("browser")]
    unexpected = [message for message in said if not any(text in message for text in console)]
    assert unexpected == []


@pytest.fixture
def page(browser, engine):
    with shown(browser, engine, step_seconds=0.005) as page:
        page.wait_until_ready()
        yield page


def test_a_prompt_is_answered(page):
    page.run(prompt="1 2", max_tokens="20", seed="7", temperature="0.5")
    result = page.result()
    assert page.text("output") == words(20)
    assert result.startswith("succeeded · 20 tokens · first after ")
    assert result.endswith("tokens/s · seed 7")
    sampling = page.asked()[-1].sampling
    assert (sampling.seed, sampling.temperature) == (7, 0.5)
    assert not page.shows("error")


def test_one_token_is_no_tokens(page):
    page.run(prompt="1 2", max_tokens="1")
    assert page.result().startswith("succeeded · 1 token · ")


def test_a_connection_that_fails_is_told_in_our_words(page):
    page.browser.execute_script("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    page.run(prompt="1 2")
    assert page.error() == ("", "The runner is not responding, or the connection to it broke.")


def test_the_answer_ends_before_what_it_shall_stop_at(page):
    page.run(prompt="1 2", stop_sequences=" 99")
    assert "succeeded" in page.result()
    assert page.text("output") == "95 96 97 98"


def test_the_answer_comes_while_it_is_made_and_can_be_stopped(page):
    page.run(prompt="1 2", max_tokens="1000000")
    wait_for(lambda: len(page.text("output")) > 20, SECONDS)
    before = page.text("output")
    wait_for(lambda: len(page.text("output")) > len(before), SECONDS)
    assert page.text("output").startswith(before)
    assert page.front.front.admission.count == 1
    assert page["stop"].is_enabled()
    assert not page["run"].is_enabled()
    page["stop"].click()
    assert page.result().startswith("stopped after ")
    wait_for(lambda: page.front.front.admission.count == 0, SECONDS)
    assert page["run"].is_enabled()
    page.run(max_tokens="5")
    wait_for(lambda: page.text("output") == words(5), SECONDS)


def test_the_chat_template_is_used_unless_somebody_says_otherwise(page):
    page.run(prompt="1 2")
    page.result()
    page["chat"].click()
    page.run()
    wait_for(lambda: len(page.asked()) == 2, SECONDS)
    templated, plain = page.asked()
    assert list(templated.input_token_ids) == [10_004, 6, 7]
    assert list(plain.input_token_ids) == [6, 7]


def test_without_a_chat_template_there_is_nothing_to_choose(browser, tmp_path):
    with shown(browser, write_engine(tmp_path / "engine")) as page:
        page.wait_until_ready()
        assert not page["chat"].is_enabled()
        page.run(prompt="1 2", max_tokens="3")
        assert "succeeded" in page.result()


def test_an_error_in_the_middle_is_shown_with_its_code_and_counted(page):
    page.run(prompt="3", max_tokens="10")
    code, text = page.error()
    assert code == "E2405"
    assert text.startswith("EngineInternalError: ")
    assert page.text("output") == words(5)
    row = wait_for(lambda: page.shows("errors") and page.text("errors"), SECONDS)
    assert "E2405EngineInternalError1" in row


def test_a_refusal_is_shown_with_its_code(browser, engine):
    refused = ("422 (Unprocessable",)
    with shown(browser, engine, console=refused) as page:
        page.wait_until_ready()
        page.run(prompt="1", seed="1", max_tokens="0.5")
        assert not page.shows("error")  # the browser itself does not send that
        page.run(max_tokens="5", seed="99999999999999999999")
        code, text = page.error()
        assert code.startswith("E1")
        assert text
        page.run(seed="1")
        assert "succeeded" in page.result()
        assert not page.shows("error")


def test_nothing_that_a_model_says_is_read_as_html(browser, tmp_path):
    engine = write_engine(tmp_path / "engine")
    said = {f"<img/src=x/onerror=document.title={number}>": number for number in range(200)}
    tokenizer = Tokenizer(WordLevel({"<unk>": 1000, **said}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(engine / "tokenizer/tokenizer.json"))
    with shown(browser, engine) as page:
        page.wait_until_ready()
        page.run(prompt="<img/src=x>", max_tokens="3")
        assert "3 tokens" in page.result()
        assert page.text("output").startswith("<img/src=x/onerror=document.title=100> <img")
        assert browser.find_elements(By.CSS_SELECTOR, "img, #output *, #curl *") == []


# As if the runner had been asked, and sent these texts at once.
ANSWER = """
const [texts] = arguments, asked = window.fetch, append = CharacterData.prototype.appendData;
const sent = (kind, data) => `event: ${kind}\\ndata: ${JSON.stringify(data)}\\n\\n`;
const events = texts.map((chunk, index) => sent("output", { chunk, index }));
events.push(sent("completed", { status: "succeeded", metrics: { output_token_count: texts.length } }));
window.fetch = (path, options) => path === "predictions" ? new Response(events.join("")) : asked(path, options);
window.shown = 0;
CharacterData.prototype.appendData = function (text) { window.shown++; append.call(this, text); };
"""


def test_an_answer_that_comes_fast_is_not_laid_out_for_each_token(page):
    texts = [f"{number} " for number in range(20_000)]
    page.browser.execute_script(ANSWER, texts)
    page.run(prompt="1")
    assert page.result().startswith("succeeded · 20000 tokens · ")
    assert page.text("output") == "".join(texts)
    assert page.browser.execute_script("return window.shown") < 2000


def test_an_answer_is_complete_in_a_tab_that_is_not_seen(page):
    page.browser.execute_script("window.requestAnimationFrame = () => 0")
    page.run(prompt="1 2", max_tokens="20")
    page.result()
    assert page.text("output") == words(20)


def test_the_end_stays_in_view_however_much_comes_at_once(page):
    page.browser.execute_script(ANSWER, ["line\n" * 50] * 200)
    page.run(prompt="1")
    page.result()
    below = (
        "const e = document.getElementById('output'); return e.scrollHeight - e.scrollTop - e.clientHeight"
    )
    assert page.browser.execute_script(below) < 2


@pytest.mark.parametrize(("text", "direction"), [("\u05e9\u05dc\u05d5\u05dd, abc!", "rtl"), ("abc", "ltr")])
def test_text_is_written_from_the_side_of_its_script(page, text, direction):
    page.browser.execute_script(ANSWER, [text])
    page.run(prompt=text)
    page.result()
    read = "return getComputedStyle(document.getElementById(arguments[0])).direction"
    assert [page.browser.execute_script(read, name) for name in ("prompt", "output")] == [direction] * 2


def test_the_model_is_named_as_soon_as_there_is_one(browser, engine):
    with shown(browser, engine, loaded=False, SERVED_MODEL_NAME="<b>llama</b>") as page:
        wait_for(lambda: page.text("status") == "STARTING", SECONDS)
        front = page.front

        async def connect():
            return front.client

        asyncio.run_coroutine_threadsafe(front.front.load(engine, connect), front.loop).result(SECONDS)
        wait_for(lambda: page.text("model") == "<b>llama</b>", SECONDS)
        assert browser.title == "<b>llama</b> · cog-triton"


def test_to_open_the_page_is_no_error(browser, engine):
    with shown(browser, engine, API_KEYS="secret") as page:
        page.wait_until_ready()
        page.run(prompt="1 2", max_tokens="3")
        assert "succeeded" in page.result()
        assert page.front.front.metrics.errors() == Counter()


def test_how_the_runner_is_is_seen(page):
    page.front.client.statistics = Statistics(1, 3, 100, 37)
    page.run(prompt="1 2", max_tokens="1000000")
    wait_for(lambda: page.text("running") == "1", SECONDS)
    wait_for(lambda: (page.text("queued"), page.text("kv_cache")) == ("3", "37%"), SECONDS)
    wait_for(lambda: float(page.text("tokens_per_second").replace(",", "")) > 0, SECONDS)
    wait_for(
        lambda: page.browser.find_elements(By.CSS_SELECTOR, "#tokens_per_second-chart polyline"), SECONDS
    )
    assert page.text("limit") == " (limit 2048)"
    page["stop"].click()


def test_a_key_is_asked_for_and_kept_in_the_tab_alone(browser, engine):
    keys = {"API_KEYS": "right", "COG_API_NEEDS_KEY": "true", "METRICS_NEED_KEY": "true"}
    with shown(browser, engine, console=("401 (Unauthorized",), **keys) as page:
        wait_for(lambda: page.shows("key-dialog"), SECONDS)
        page["key-leave"].click()
        wait_for(lambda: "API key is needed" in page.text("watch-problem"), SECONDS)
        page.run(prompt="1 2", max_tokens="3")
        wait_for(lambda: page.shows("key-dialog"), SECONDS)
        assert not page.shows("key-refused")
        give(page, "wrong")
        wait_for(lambda: page.shows("key-refused"), SECONDS)
        give(page, "right")
        assert "succeeded" in page.result()
        assert 'Bearer $API_KEY"' in page.text("curl")
        page.browser.find_element(By.CSS_SELECTOR, "#watch-problem button").click()
        page.wait_until_ready()
        kept = "return [document.cookie, localStorage.length, Object.values(sessionStorage), document.body.innerHTML]"
        cookies, local, session, html = browser.execute_script(kept)
        assert (cookies, local, session) == ("", 0, ["right"])
        assert "right" not in html
        browser.refresh()
        page.wait_until_ready()
        browser.execute_script("sessionStorage.clear()")


@pytest.mark.parametrize("key", ["sk\u2026right", "\u0440ight", "right\u200b"])
def test_a_key_that_cannot_be_sent_is_refused_like_any_other(browser, engine, key):
    keys = {"API_KEYS": "right", "METRICS_NEED_KEY": "true"}
    with shown(browser, engine, console=("401 (Unauthorized",), **keys) as page:
        wait_for(lambda: page.shows("key-dialog"), SECONDS)
        give(page, key)
        wait_for(lambda: page.shows("key-refused"), SECONDS)
        give(page, "right")
        page.wait_until_ready()
        browser.execute_script("sessionStorage.clear()")


def give(page, key):
    page.fill(key=key)
    page["key-use"].click()


def test_a_runner_that_goes_away_is_noticed(browser, engine):
    with shown(
        browser, engine, console=("ERR_CONNECTION_REFUSED", "ERR_EMPTY", "ERR_CONNECTION_RESET")
    ) as page:
        page.wait_until_ready()
        stopping = page.front
        stopping.loop.call_soon_threadsafe(setattr, stopping.server, "should_exit", True)
        wait_for(lambda: page.text("status") == "UNREACHABLE", SECONDS)
        assert page.text("watch-problem").startswith("The runner is not responding.")
        page.run(prompt="1")
        assert page.error()[0] == ""


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out(page, width):
    resize(page.browser, width, 900)
    page.run(prompt="1 " * 100, max_tokens="100", stop_sequences="x" * 200)
    page.result()
    page.browser.find_element(By.TAG_NAME, "summary").click()
    assert page.browser.execute_script("return document.documentElement.scrollWidth") <= width
