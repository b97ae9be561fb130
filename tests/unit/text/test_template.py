import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.text.template import fill_template
from shared.errors import BadPromptTemplate, PromptRequired, PromptTemplateError


def test_both_fields_are_filled():
    template = "<<SYS>>{system_prompt}<</SYS>> {prompt} [/INST] {prompt}"
    assert fill_template(template, "hi", "be brief") == "<<SYS>>be brief<</SYS>> hi [/INST] hi"


def test_doubled_braces_are_literal():
    assert fill_template('{{"q": "{prompt}"}}', "hi") == '{"q": "hi"}'


@given(st.text(), st.text())
def test_what_is_filled_in_is_never_interpreted(prompt, system_prompt):
    assert fill_template("[{system_prompt}|{prompt}]", prompt, system_prompt) == f"[{system_prompt}|{prompt}]"


@pytest.mark.parametrize(
    "template",
    [
        "{prompt.__class__}",
        "{prompt[0]}",
        "{prompt!r}",
        "{prompt:>99999999}",
        "{prompt:{system_prompt}}",
        "{prompt",
        "prompt}",
        "{}",
        "{0}",
        "{ prompt }",
        "{Prompt}",
        "{prompt} {message}",
    ],
)
def test_anything_else_of_format_is_refused(template):
    with pytest.raises(PromptTemplateError) as caught:
        fill_template(template, "hi")
    assert caught.value.code == "E1004"


def test_a_long_field_is_told_in_part():
    with pytest.raises(PromptTemplateError, match="it has the field 'xxx") as caught:
        fill_template(f"{{{'x' * 100_000}}}", "hi")
    assert len(str(caught.value)) < 1000


def test_a_template_without_a_place_for_the_prompt_is_refused():
    with pytest.raises(BadPromptTemplate, match=r"E1003 .*lacks \{prompt\}"):
        fill_template("{system_prompt}", "hi", "be brief")


def test_a_system_prompt_that_was_sent_is_not_lost_in_silence():
    with pytest.raises(BadPromptTemplate, match=r"E1003 .*lacks \{system_prompt\}"):
        fill_template("{prompt}", "hi", "be brief", system_prompt_sent=True)


def test_a_default_system_prompt_without_a_place_is_left_out():
    assert fill_template("{prompt}", "hi", "be brief") == "hi"


def test_an_empty_system_prompt_needs_no_place():
    assert fill_template("{prompt}", "hi", "", system_prompt_sent=True) == "hi"


@pytest.mark.parametrize("prompt", ["", " ", "\n\t"])
def test_a_blank_formatted_prompt_is_refused(prompt):
    with pytest.raises(PromptRequired, match="E1001"):
        fill_template("{prompt}", prompt)


def test_a_template_with_text_of_its_own_needs_no_prompt():
    assert fill_template("Once upon a time{prompt}", "") == "Once upon a time"
