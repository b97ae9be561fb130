import pytest

from builder.check.source import check_source
from shared.config import load_instantiate
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


def test_how_it_is_served_is_said_here_and_not_there(folder):
    config = folder / "models/m/config.yaml"
    (folder / "models/m/build.yaml").write_text(
        BUILD + "instantiate: {system_prompt: Be long., prompt_template: '{prompt}!'}\n"
    )
    report = check_source(str(config))
    assert prompt_of(report) == "Be brief."
    # As `cog-triton instantiate` reads the same file.
    assert report.build_config().instantiate == load_instantiate(config.read_text(), "config.yaml")


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


@pytest.mark.parametrize(
    ("named", "reason"), [("nope.yaml", "there is no such file"), (".", "it is a directory")]
)
def test_the_build_config_is_what_is_missing(folder, named, reason):
    config = folder / "models/m/config.yaml"
    config.write_text(OFFICIAL.replace("models/m/build.yaml", named))
    (found,) = check_source(str(config)).diagnostics
    assert found.what == (
        f"The config {named} cannot be read: not beside {config}, whose build.config names it ({reason}),"
        " nor in a folder above that."
    )


@pytest.mark.parametrize("chunked", [True, False])
def test_with_chunked_context_there_prompts_are_not_capped(folder, chunked):
    """The official config says how it is served; what the build config says of that has no effect."""
    config, build = folder / "models/m/config.yaml", folder / "models/m/build.yaml"
    args = "{tensorrt_llm: {args: {enable_chunked_context: WORD}}}"
    config.write_text(
        OFFICIAL.replace("system_prompt: Be brief.", f"server: {args.replace('WORD', str(chunked))}")
    )
    served = f"instantiate: {{server: {args.replace('WORD', str(not chunked))}}}"
    build.write_text(f"{BUILD}max_seq_len: 32768\n{served}\n")
    codes = [one.code for one in check_source(str(config)).diagnostics]
    assert codes == ([] if chunked else ["E3028"])


@pytest.mark.parametrize(("text", "code"), [("", "E3000"), (OFFICIAL, "E3004")])
def test_no_build_config(folder, text, code):
    build = folder / "models/m/build.yaml"
    build.write_text(text) if text else build.unlink()
    (found,) = check_source(str(folder / "models/m/config.yaml")).diagnostics
    assert found.code == code


def test_a_problem_is_told_of_the_file_that_has_it(folder):
    official, build = folder / "official.yaml", folder / "models/m/build.yaml"
    wrong = "{tensorrt_llm: {args: {kv_cache_free_gpu_mem_fraction: 2}}}"
    official.write_text(OFFICIAL.replace("system_prompt: Be brief.", f"server: {wrong}"))
    with pytest.raises(ConfigCheckFailed) as failed:
        check_source(str(official)).build_config()
    assert failed.value.details["source"] == str(official)
    build.write_text(f"{BUILD}instantiate:\n  server: {wrong}\n")
    with pytest.raises(ConfigCheckFailed) as failed:
        check_source(str(official)).build_config()
    assert failed.value.details["source"] == str(official)
    assert f"; {build}, line 4: E2505 " in str(failed.value.details["reason"])
