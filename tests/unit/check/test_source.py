import pytest

from builder.check.source import check_source
from shared.errors import ConfigCheckFailed
from tests.support.loopback import folder_server

OFFICIAL = "build: {config: models/m/build.yaml}\ninstantiate: {system_prompt: Be brief.}\n"
BUILD = "engine: tensorrt_llm\nmodel: a/b\n"


@pytest.fixture
def folder(tmp_path):
    """The layout of a repository of official models."""
    (tmp_path / "models/m").mkdir(parents=True)
    (tmp_path / "models/m/build.yaml").write_text(BUILD)
    (tmp_path / "models/m/config.yaml").write_text(OFFICIAL)
    return tmp_path


@pytest.fixture
def site(folder):
    with folder_server(folder) as server:
        yield server.url


def prompt_of(report):
    assert [str(one) for one in report.diagnostics] == []
    return report.build_config().instantiate.system_prompt


def test_a_path_counts_from_a_folder_above(folder):
    assert prompt_of(check_source(str(folder / "models/m/config.yaml"))) == "Be brief."


def test_a_path_counts_from_the_address_above(site):
    assert prompt_of(check_source(f"{site}/models/m/config.yaml")) == "Be brief."


def test_an_address(folder, site):
    (folder / "official.yaml").write_text(OFFICIAL.replace("models", f"{site}/models"))
    assert prompt_of(check_source(str(folder / "official.yaml"))) == "Be brief."


def test_the_build_config_has_the_last_word(folder):
    (folder / "models/m/build.yaml").write_text(BUILD + "instantiate: {system_prompt: Be long.}\n")
    assert prompt_of(check_source(str(folder / "models/m/config.yaml"))) == "Be long."


def test_what_is_wrong_there_is_named_there(folder):
    (folder / "models/m/build.yaml").write_text(BUILD + "dtype: x\n")
    (found,) = check_source(str(folder / "models/m/config.yaml")).diagnostics
    assert (found.code, found.line) == ("E3008", 3)
    assert found.file.endswith("build.yaml")


def test_what_is_wrong_here_is_named_here(folder):
    config = folder / "models/m/config.yaml"
    server = "server: {tensorrt_llm: {args: {gpu_weights_percent: 2}}}"
    config.write_text(OFFICIAL.replace("system_prompt", f"{server}, system_prompt"))
    report = check_source(str(config))
    (found,) = report.diagnostics
    assert (found.file, found.code) == (str(config), "E2505")
    with pytest.raises(ConfigCheckFailed, match="gpu_weights_percent"):
        report.build_config()


def test_an_address_with_nothing_there(folder, site):
    (folder / "official.yaml").write_text(OFFICIAL.replace("models", f"{site}/none"))
    (found,) = check_source(str(folder / "official.yaml")).diagnostics
    assert found.what.startswith(f"The config {site}/none/m/build.yaml cannot be read: ")
    assert "beside it" not in found.what


@pytest.mark.parametrize(("text", "code"), [("", "E3000"), (OFFICIAL, "E3004")])
def test_no_build_config(folder, text, code):
    build = folder / "models/m/build.yaml"
    build.write_text(text) if text else build.unlink()
    (found,) = check_source(str(folder / "models/m/config.yaml")).diagnostics
    assert found.code == code
