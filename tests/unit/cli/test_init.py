import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.init import SCHEMA_FILE, config_of
from cli.main import app
from shared.config import ENGINES, load_config
from shared.config.examples import EXAMPLES
from shared.config.schema import schema
from shared.errors import ConfigValueInvalid


def run(*arguments):
    return CliRunner().invoke(app, ["init", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_config_is_the_example_of_its_engine(engine):
    found = load_config(config_of(engine), "c").model_dump(exclude={"instantiate"})
    assert found == load_config(EXAMPLES[engine], "c").model_dump(exclude={"instantiate"})


@pytest.mark.parametrize("engine", ENGINES)
def test_every_key_is_there_and_may_be_set(engine):
    whole = re.sub(r"^#(?! )|^#(?=  \w)", "", config_of(engine), flags=re.MULTILINE)
    config = load_config(whole, "c")
    for name, field in ENGINES[engine].model_fields.items():
        assert re.search(rf"^{name}:", whole, re.MULTILINE), name
        assert str(field.description)[:30] in whole
    assert config.instantiate is not None


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_links_to_a_page_that_is_not_there(engine):
    assert "](" not in config_of(engine)


def test_the_file_names_the_schema_beside_it(tmp_path):
    path = tmp_path / "a config.yaml"
    result = run(path)
    assert f"cog-triton check '{path}'" in result.output
    first = path.read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE}"
    assert json.loads((tmp_path / SCHEMA_FILE).read_text()) == schema()
    assert CliRunner().invoke(app, ["check", str(path)]).exit_code == 0


def test_another_engine_and_model(tmp_path):
    run(tmp_path / "c.yaml", "--engine", "tensorrt_llm", "--model", "./my: model")
    config = load_config((tmp_path / "c.yaml").read_text(), "c")
    assert (config.engine, config.model, config.revision) == ("tensorrt_llm", "./my: model", None)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("", "must not be empty"),
        ("a\nengine: mock", "must be one line without control characters"),
        ("ftp://host/a", "must be the name of a model on the hub"),
    ],
)
def test_a_model_that_no_config_may_have(tmp_path, engine, model, problem):
    with pytest.raises(ConfigValueInvalid, match=f"The value of --model {problem}"):
        run(tmp_path / "c.yaml", "--engine", engine, "--model", model)
    assert list(tmp_path.iterdir()) == []


def test_two_at_once_in_one_folder(tmp_path, monkeypatch):
    """The second one took the first one's schema away before it was in its place."""

    replace = Path.replace

    def later(part, schema):
        monkeypatch.undo()
        run(tmp_path / "second.yaml")
        return replace(part, schema)

    monkeypatch.setattr(Path, "replace", later)
    run(tmp_path / "first.yaml")
    assert {path.name for path in tmp_path.iterdir()} == {"first.yaml", "second.yaml", SCHEMA_FILE}


@pytest.mark.parametrize("place", ["c.yaml", "none/c.yaml", ".", "a" * 256])
def test_nothing_is_overwritten(tmp_path, place):
    (tmp_path / "c.yaml").write_text("mine")
    with pytest.raises(Exception, match="E3302"):
        run(tmp_path / place)
    assert (tmp_path / "c.yaml").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "/", "/usr"])
def test_a_name_is_needed(name):
    with pytest.raises(
        Exception, match=r"E3302 .*: it is a directory\. Choose a file, such as .*config.yaml"
    ):
        run(name)


def test_a_directory_that_is_missing_is_to_be_created(tmp_path):
    with pytest.raises(
        Exception, match=r"there is no directory \S+/none\. Create it, or choose another file\.$"
    ):
        run(tmp_path / "none/c.yaml")


def test_nothing_is_left_where_the_schema_cannot_be_written(tmp_path):
    (tmp_path / SCHEMA_FILE).mkdir()
    with pytest.raises(Exception, match="E3302"):
        run(tmp_path / "c.yaml")
    assert [path.name for path in tmp_path.iterdir()] == [SCHEMA_FILE]


@pytest.mark.parametrize("before", ["a schema", None])
def test_nothing_is_left_where_writing_fails_half_way(tmp_path, before, monkeypatch):
    if before is not None:
        (tmp_path / SCHEMA_FILE).write_text(before)
    monkeypatch.setattr("cli.init.rendered_schema", lambda: "{\udead")  # cannot be encoded
    with pytest.raises(UnicodeEncodeError):
        run(tmp_path / "c.yaml")
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == ({} if before is None else {SCHEMA_FILE: before})
