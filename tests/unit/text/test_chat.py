"""Chat templates, as models are published with them."""

from __future__ import annotations

import json

import pytest

from runner.text.chat import ChatTemplate
from runner.text.messages import parse_messages
from shared.errors import MessagesInvalid, TritonTokenizerError

CHATML = (
    "{% for message in messages %}\n"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' -}}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
ALTERNATES = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}{{ m.content }}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
HELLO = [{"role": "user", "content": "Hello {{ 7 * 7 }}"}]


def test_chatml():
    messages = [{"role": "system", "content": "Be brief."}, *HELLO]
    assert ChatTemplate(CHATML, {}).render(messages) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHello {{ 7 * 7 }}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_special_tokens_and_what_a_template_refuses():
    template = ChatTemplate(ALTERNATES, {"bos_token": "<s>", "eos_token": "</s>"})
    assert template.render(HELLO) == "<s>[INST] Hello {{ 7 * 7 }} [/INST]"
    with pytest.raises(MessagesInvalid, match="roles must alternate"):
        template.render(HELLO * 2)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10**9) %}x{% endfor %}",
        "{{ 'x' * 5000000 }}",
        "{{ missing.attribute }}",
    ],
)
def test_a_template_stays_in_its_sandbox(template):
    with pytest.raises(MessagesInvalid):
        ChatTemplate(template, {}).render(HELLO)


def test_additions_of_transformers():
    template = "{{ messages | tojson }}{% for m in messages %}{% break %}{% endfor %}{{ strftime_now('%%') }}"
    assert ChatTemplate(template, {}).render([{"role": "a", "content": "<é>"}]) == (
        '[{"role": "a", "content": "<é>"}]%'
    )


@pytest.mark.parametrize("name", ["tools", "documents"])
def test_what_transformers_always_passes_is_defined(name):
    """Templates that ask `is not none` took what was not defined for a list of none."""
    template = (
        f"{{% if {name} is not none %}}[{{{{ {name}|length }}}}]{{% endif %}}x{{{{ {name} is defined }}}}"
    )
    assert ChatTemplate(template, {}).render(HELLO) == "xTrue"
    assert ChatTemplate(template, {}).render(HELLO, {name: [{}]}) == "[1]xTrue"


def test_every_special_token_of_a_model_has_its_variable(tmp_path):
    """As in transformers' `special_tokens_map`: the named ones of models that see, and the list of the rest."""
    config = {
        "extra_special_tokens": {"image_token": "<image>", "bos_token": "<no>"},
        "additional_special_tokens": ["<a>", {"content": "<b>"}],
        "bos_token": {"content": "<s>"},
        "chat_template": "{{ bos_token }}{{ image_token }}{{ additional_special_tokens | join(' ') }}",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    template = ChatTemplate.load(tmp_path)
    assert template is not None
    assert template.render(HELLO) == "<s><image><a> <b>"


@pytest.mark.parametrize(
    ("filter_", "rendered"),
    [
        ("tojson(ensure_ascii=False)", '{"b": "é", "a": 1}'),
        ("tojson(ensure_ascii=True)", '{"b": "\\u00e9", "a": 1}'),
        ("tojson(sort_keys=true)", '{"a": 1, "b": "é"}'),
        ("tojson(separators=(',', ':'))", '{"b":"é","a":1}'),
        ("tojson(indent=1)", '{\n "b": "é",\n "a": 1\n}'),
    ],
)
def test_json_in_the_forms_that_templates_ask_for(filter_, rendered):
    assert ChatTemplate("{{ {'b': 'é', 'a': 1} | " + filter_ + " }}", {}).render(HELLO) == rendered


def test_what_is_marked_for_training_is_ordinary_text():
    """Templates of models that were fine-tuned with TRL, and of Phi-4 and LFM2.5."""
    template = (
        "{% set said = 'none' %}{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% generation %}{% set said = m.content %}{{ said }}<|end|>{% endgeneration %}[{{ said }}]"
        "{% else %}{{ m.content }} {% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert ChatTemplate(template, {}).render(messages) == "a b<|end|>[none]"


IN_PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for part in m['content'] %}"
    "{% if part.type == 'text' %} {{ part.text }}{% endif %}{% endfor %};{% endfor %}"
)


@pytest.mark.parametrize(
    "template",
    [IN_PARTS, "{% for m in messages %}{{ m.role }}: {{ m['content'][0]['text'] }};{% endfor %}"],
)
def test_a_template_that_takes_content_in_parts_alone_gets_it_so(template):
    """Those of Idefics3 and LLaVA: a text they left out, without an error, or refused."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi", "name": "Ann"}]
    assert ChatTemplate(template, {}).render(messages) == "system: Be brief.;user: Hi;"


def test_a_template_that_takes_either_gets_text():
    either = (
        "{% for m in messages %}{% if m.content is string %}text {{ m.content }}{% else %}"
        "{% for part in m.content %}parts {{ part.text }}{% endfor %}{% endif %}{% endfor %}"
    )
    assert ChatTemplate(either, {}).render(HELLO) == "text Hello {{ 7 * 7 }}"


@pytest.mark.parametrize(
    ("config", "older", "rendered"),
    [
        ({"bos_token": "<s>"}, {"eos_token": {"content": "</s>", "lstrip": False}}, "<s></s>"),
        ({"bos_token": "<s>"}, {"bos_token": "<b>"}, "<b>"),
        ({"bos_token": "<s>", "added_tokens_decoder": {}}, {"bos_token": "<b>"}, "<s>"),
        ({"cls_token": "<c>", "sep_token": "<p>", "mask_token": "<m>"}, {}, "<c><p><m>"),
    ],
)
def test_where_the_special_tokens_stand(tmp_path, config, older, rendered):
    """As transformers reads them (`_from_pretrained` in tokenization_utils_base.py)."""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(older))
    template = "{{ bos_token }}{{ eos_token }}{{ cls_token }}{{ sep_token }}{{ mask_token }}"
    (tmp_path / "chat_template.jinja").write_text(template)
    assert ChatTemplate.load(tmp_path).render(HELLO) == rendered


@pytest.mark.parametrize(
    ("config", "older"), [("{}", "[]"), ("{}", '{"bos_token": {"x": 1}}'), ('{"pad_token": {"id": 3}}', "{}")]
)
def test_special_tokens_that_are_none_are_not_told_as_a_template_that_is_none(tmp_path, config, older):
    (tmp_path / "tokenizer_config.json").write_text(config)
    (tmp_path / "special_tokens_map.json").write_text(older)
    (tmp_path / "chat_template.jinja").write_text("x")
    with pytest.raises(TritonTokenizerError, match="does not have its special tokens as text"):
        ChatTemplate.load(tmp_path)


def test_a_template_that_refuses_without_a_word():
    with pytest.raises(MessagesInvalid, match="refuses them: it does not say why"):
        ChatTemplate("{{ raise_exception('') }}", {}).render(HELLO)


@pytest.mark.parametrize(
    ("config", "file", "rendered"),
    [
        ({"chat_template": "config"}, None, "config"),
        ({"chat_template": "config"}, "file", "file"),
        ({"chat_template": [{"name": "default", "template": "named"}]}, None, "named"),
        ({"chat_template": "{{ bos_token }}", "bos_token": {"content": "<s>"}}, None, "<s>"),
    ],
)
def test_where_the_template_is_found(tmp_path, config, file, rendered):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    if file:
        (tmp_path / "chat_template.jinja").write_text(file)
    assert ChatTemplate.load(tmp_path).render(HELLO) == rendered


@pytest.mark.parametrize(
    ("content", "rendered"), [({"chat_template": "processor"}, "processor"), ({}, "tokenizer")]
)
def test_older_models_that_see_have_it_in_chat_template_json(tmp_path, content, rendered):
    (tmp_path / "chat_template.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "tokenizer"}))
    assert ChatTemplate.load(tmp_path).render(HELLO) == rendered
    (tmp_path / "chat_template.jinja").write_text("file")
    assert ChatTemplate.load(tmp_path).render(HELLO) == "file"


def test_a_model_without_a_template(tmp_path):
    assert ChatTemplate.load(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert ChatTemplate.load(tmp_path) is None


@pytest.mark.parametrize("config", ['{"chat_template": "{% if %}"}', '{"chat_template": 1}', "[]", "{"])
def test_a_template_that_is_not_valid(tmp_path, config):
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(TritonTokenizerError, match="chat template"):
        ChatTemplate.load(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "{}",
        '["x"]',
        '[{"role": "user"}]',
        '[{"role": "", "content": "x"}]',
        '[{"role": "user", "content": 1}]',
        "[" * 100_000,
        json.dumps([{"role": "user", "content": "x"}] * 20_000),
    ],
)
def test_messages_that_are_none(text):
    with pytest.raises(MessagesInvalid):
        parse_messages(text)


def test_further_keys_reach_the_template():
    message = {"role": "user", "content": "x", "name": "Ann"}
    assert parse_messages(json.dumps([message])) == [message]


def test_a_template_that_is_nested_too_deeply_is_not_valid():
    with pytest.raises(TritonTokenizerError, match="its chat template is nested too deeply"):
        ChatTemplate("{{ " + "(" * 10_000 + ")" * 10_000 + " }}", {})


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("chat_template.jinja", b"\xff", "it is not UTF-8"),
        ("chat_template.json", b"{", "chat_template.json is not JSON: Expecting property name"),
        ("chat_template.json", b"[]", "chat_template.json or tokenizer_config.json does not have it as text"),
        ("tokenizer_config.json", b"{", "tokenizer_config.json is not JSON: Expecting property name"),
        ("tokenizer_config.json", b"[" * 100_000, "tokenizer_config.json is nested too deeply"),
        ("special_tokens_map.json", b"{", "special_tokens_map.json is not JSON: Expecting property name"),
        ("tokenizer_config.json", b"9" * 5000, "tokenizer_config.json has a number with too many digits"),
        (
            "tokenizer_config.json",
            b'{"chat_template": [1]}',
            "chat_template.json or tokenizer_config.json does not have it as text, or as a list of named texts",
        ),
    ],
)
def test_why_a_template_cannot_be_read_is_told_in_words(tmp_path, file, content, told):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(TritonTokenizerError) as refused:
        ChatTemplate.load(tmp_path)
    reason = str(refused.value.details["reason"])
    assert reason.startswith(f"its chat template cannot be read: {told}")
