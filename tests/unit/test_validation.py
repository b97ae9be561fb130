"""What is said of a wrong value: never in the words of the library that found it."""

from __future__ import annotations

from typing import get_args

import pytest
from typer.testing import CliRunner

from cli.main import EngineName, app
from runner.settings import Settings
from runner.text.messages import parse_messages
from shared.errors import MessagesInvalid, SettingInvalid

ENGINE_NAMES = ", ".join(map(repr, get_args(EngineName)))

HOST_AND_PORT = "it must be host:port, the port from 1 to 65535 and an IPv6 host in brackets"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("MAX_PREDICTIONS", "x", "it must be a whole number"),
        ("MAX_PREDICTIONS", "1.5", "it must be a whole number"),
        ("MAX_PREDICTIONS", "9" * 5000, "it is too far from 0"),
        ("MAX_PREDICTIONS", "0", "it must be greater than or equal to 1"),
        ("PROBE_TIMEOUT", "x", "it must be a number"),
        ("ALLOW_SHUTDOWN", "maybe", "it must be true or false"),
        ("SERVER", "x", "it must be 'front' or 'cog'"),
        ("PROMPT_TEMPLATE", "Hello", "it is not a valid template: it lacks {prompt}"),
        ("PROMPT_TEMPLATE", "{prompt}{x}", "it is not a valid template: it has the field 'x'"),
        (
            "PROMPT_TEMPLATE",
            "{prompt} }",
            "it is not a valid template: a brace in it is neither doubled nor part of a field",
        ),
        ("TRITON_HTTP_ADDRESS", "x", HOST_AND_PORT),
        ("TRITON_HTTP_ADDRESS", f"x:{'9' * 5000}", HOST_AND_PORT),
    ],
)
def test_a_setting(name, value, told):
    with pytest.raises(SettingInvalid) as refused:
        Settings.from_environment({name: value})
    shown = value if len(value) <= 200 else f"{value[:200]}..."
    assert str(refused.value) == (
        f"E4002 SettingInvalid: The setting {name} is '{shown}', but {told}."
        " See docs/environment.md, or for an option `--help`."
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "messages must be a list"),
        ("x", "messages is not JSON: expected value at line 1 column 1"),
        ("[" * 300 + "]" * 300, "messages is nested too deeply"),
        ("[1]", "messages[0] must be an object"),
        ("[{}]", "messages[0].role is missing"),
        ('[{"role": "", "content": "x"}]', "messages[0].role must not be empty"),
        ('[{"role": "user", "content": 1}]', "messages[0].content must be text"),
    ],
)
def test_messages(text, told):
    with pytest.raises(
        MessagesInvalid, match=r"^E1005 MessagesInvalid: The messages cannot be used: "
    ) as refused:
        parse_messages(text)
    assert f"used: {told}. Send a JSON list" in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("generate", "x", "--top-p", "3"), "'--top-p': it must be less than or equal to 1"),
        (("generate", "x", "--temperature", "hot"), "'--temperature': it must be a number"),
        (("serve", "x", "--port", "0"), "'--port': it must be greater than or equal to 1"),
        (("init", "--engine", "foo"), f"'--engine': 'foo' is not one of {ENGINE_NAMES}."),
    ],
)
def test_an_option(arguments, told):
    ended = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert ended.exit_code == 2
    assert f"Invalid value for {told}" in ended.output
