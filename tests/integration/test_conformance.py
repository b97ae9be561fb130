"""Our server and Cog's own say the same to the same requests, but for the table in docs/cog-api.md.

Both serve the same runner with the mock engine. A difference that the table does not have fails, and so does a
row of the table that is true of no request.
"""

from __future__ import annotations

from functools import cache, partial

import pytest

from tests.integration.conftest import cog_server
from tests.support.conformance import bodies, lives, telling
from tests.support.conformance.conversation import CONVERSATIONS, PLACES, Server
from tests.support.conformance.table import differences, rows
from tests.support.conformance.webhooks import Hooks
from tests.support.waiting import wait_for

for said in (bodies, lives, telling):
    assert said.__doc__  # importing one is what adds its conversations

_NAMES = [conversation.groups[0] for conversation in CONVERSATIONS]
ROWS = rows()


@pytest.fixture(scope="module")
def hooks():
    with Hooks() as hooks:
        yield hooks


@pytest.fixture(scope="module")
def serve(mock_archive, tmp_path_factory, hooks):
    """`serve(name, setting=value, ...)`: a context with a server."""
    directory = tmp_path_factory.mktemp("conformance")
    environment = {
        "COG_WEIGHTS": str(mock_archive(tokens_per_second=100)),
        "WEIGHTS_CACHE": str(directory / "weights"),
        "RESPONSE_TIMEOUT": "1",
        "WEBHOOK_ALLOW": hooks.url,
        "WEBHOOK_AUTH_TOKEN": "secret",
    }

    def serve(name, **settings):
        log = directory / f"{name}.log"
        return cog_server("runner", log, concurrency=PLACES, **environment, **settings)

    return serve


def is_ready(server):
    return server.health()["status"] == "READY"


@pytest.fixture(scope="module")
def ask(serve, hooks):
    """`ask(conversation)`: what Cog's server and ours say. Each is asked once."""
    with serve("front") as front, serve("cog", SERVER="cog") as cog:

        @cache
        def asked(conversation):
            transcripts = []
            for server in (cog, front):
                wait_for(partial(is_ready, server))
                with Server(server.url, hooks) as spoken_to:
                    transcripts.append(conversation.speak(spoken_to))
            return transcripts

        yield asked


@pytest.fixture(scope="module")
def compare(ask):
    """`compare(conversation)`: the differences between what the two servers say."""
    return cache(lambda conversation: differences(*ask(conversation)))


def test_no_two_conversations_have_one_name():
    assert len(set(_NAMES)) == len(_NAMES)


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=_NAMES)
def test_both_say_the_same_but_for_the_table(compare, conversation):
    unknown = [
        difference
        for difference in compare(conversation)
        if not any(row.allows(conversation.groups, difference) for row in ROWS)
    ]
    assert not unknown, "\n".join(map(str, unknown))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.requests[0]}: {row.what[0]}")
def test_a_row_of_the_table_is_true_of_some_request(compare, row):
    for group in row.requests:
        assert any(group in conversation.groups for conversation in CONVERSATIONS), group
    assert any(
        row.allows(conversation.groups, difference)
        for conversation in CONVERSATIONS
        if not set(row.requests).isdisjoint(conversation.groups)
        for difference in compare(conversation)
    )


def test_shutdown_is_as_cogs_where_a_setting_allows_it(ask, serve, hooks):
    (shutdown,) = (one for one in CONVERSATIONS if one.groups[0] == "POST /shutdown")
    cogs, _ = ask(shutdown)
    with serve("shut down", ALLOW_SHUTDOWN="1") as server:
        with Server(server.url, hooks) as spoken_to:
            ours = shutdown.speak(spoken_to)
        assert server.process.wait(20) == 0
    assert [difference.name for difference in differences(cogs, ours)] == ["header x-request-id"]
