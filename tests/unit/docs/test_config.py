import re

import pytest
from pydantic import BaseModel

from shared.config import ENGINES, Instantiate, Server, ServerArguments, load_config
from shared.config.examples import EXAMPLES
from shared.config.old import BuiltConfig, CogTRTLLMConfig, OfficialConfig, ToolSection
from shared.config.schema import schema as json_schema
from shared.layout import PROJECT_ROOT
from tools.docs import config as docs


@pytest.mark.parametrize("engine", ENGINES)
def test_the_example_of_each_engine_loads(engine):
    text = docs.SCHEMA_LINE + EXAMPLES[engine]
    assert load_config(text, "docs/config.md").engine == engine
    assert "".join(f"    {line}\n" for line in text.splitlines()) in docs.page()


@pytest.mark.parametrize("kind", docs.OLD_EXAMPLES, ids=lambda kind: kind.__name__)
def test_the_example_of_each_older_form_loads(kind):
    text = docs.SCHEMA_LINE + docs.OLD_EXAMPLES[kind]
    assert isinstance(load_config(text, "docs/config.md"), kind)
    assert "".join(f"    {line}\n" for line in text.splitlines()) in docs.page()


SECTIONS = [ToolSection, BuiltConfig, Instantiate, Server, ServerArguments]


@pytest.mark.parametrize(
    "kind",
    [*ENGINES.values(), CogTRTLLMConfig, OfficialConfig, *SECTIONS],
    ids=lambda kind: kind.__name__,
)
def test_every_key_is_described(kind: type[BaseModel]):
    assert all(field.description for field in kind.model_fields.values())


def test_links_lead_to_headings():
    page = docs.page()
    headings = {
        heading.lower().replace(" ", "-") for heading in re.findall(r"^###? (.+)$", page, re.MULTILINE)
    }
    assert set(re.findall(r"\(#([^)]+)\)", page)) == headings


def test_the_schema_knows_the_engines_and_forbids_other_keys():
    schema = json_schema()
    assert set(schema["anyOf"][0]["discriminator"]["mapping"]) == set(ENGINES)
    sections = [one for one in schema["$defs"].values() if "properties" in one]
    assert all(section["additionalProperties"] is False for section in sections)


@pytest.mark.parametrize(
    "example", sorted((PROJECT_ROOT / "examples").rglob("*.yaml")), ids=lambda path: path.stem
)
def test_editors_check_each_example_by_the_schema(example):
    first, _, _ = example.read_text().partition("\n")
    named = first.removeprefix("# yaml-language-server: $schema=")
    assert (example.parent / named).resolve() == PROJECT_ROOT / "docs/config.schema.json"
