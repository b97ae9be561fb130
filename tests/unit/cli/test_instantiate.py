"""What `cog-triton instantiate` makes of a config; tests/images pushes the result."""

import errno
import os

import pytest
from typer.testing import CliRunner

from cli.instantiate import instantiate, model_environment, push_model, with_environment
from cli.main import app
from runner.settings import Settings
from shared.config import Instantiate
from shared.errors import ConfigInvalid, ModelImageFailed, OutputRefused, ServerParameterInvalid

CONFIG = """\
engine: ctranslate2
model: owner/name
instantiate:
  base_model: localhost:1/runner
  staging_dest: localhost:1/model
  weights: {weights}
"""


def config(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return str(path)


def test_new_variables_replace_those_of_the_same_name():
    image = {"config": {"Env": ["PATH=/usr/bin", "SYSTEM_PROMPT=old"], "User": "cog"}}
    changed = with_environment(image, {"SYSTEM_PROMPT": "a=b"})
    assert changed["config"] == {"Env": ["PATH=/usr/bin", "SYSTEM_PROMPT=a=b"], "User": "cog"}


def test_an_image_without_a_config_gets_one():
    assert with_environment({}, {"A": "1"}) == {"config": {"Env": ["A=1"]}}


def test_a_config_that_names_no_image_is_refused(tmp_path):
    source = config(tmp_path, "engine: ctranslate2\nmodel: owner/name\n")
    with pytest.raises(ConfigInvalid, match="base_model and staging_dest"):
        instantiate(source, "localhost:1/runner", None)


def test_weights_on_this_machine_are_refused(tmp_path):
    with pytest.raises(ConfigInvalid, match=r"line 6: instantiate\.weights: must be an http or https URL"):
        instantiate(config(tmp_path, CONFIG.format(weights="./engine.tar")), None, None)


@pytest.mark.parametrize("address", ["://", "ftp://example.com/engine.tar", "owner/name", ""])
def test_weights_that_no_runner_can_fetch_are_refused(address):
    with pytest.raises(ConfigInvalid, match="must be the URL"):
        instantiate(None, "localhost:1/runner", "localhost:1/model", {"COG_WEIGHTS": address})


def test_arguments_with_which_no_runner_starts_are_refused(tmp_path):
    server = "  server: {tensorrt_llm: {args: {kv_cache_free_gpu_mem_fraction: 7}}}\n"
    source = config(tmp_path, CONFIG.format(weights="https://example.com/engine.tar") + server)
    with pytest.raises(ServerParameterInvalid, match="kv_cache_free_gpu_mem_fraction"):
        instantiate(source, None, None)


def test_all_arguments_of_the_server_are_the_runners_too():
    arguments = {"tensorrt_llm": {"args": {"decoupled_mode": "False", "max_queue_size": 5}},
                 "preprocessing": {"args": {"tokenizer_dir": "100% /x"}}}  # fmt: skip
    section = Instantiate.model_validate({"weights": "https://example.com/engine.tar", "server": arguments})
    settings = Settings.from_environment(model_environment(section))
    assert settings.instantiate({}) == {"server": arguments}
    assert settings.server_arguments({}) == {"decoupled_mode": "False", "max_queue_size": 5}


@pytest.fixture
def pushed(monkeypatch):
    """What would be pushed: (base, dest, variables)."""
    calls = []

    def push(*call: object) -> str:
        calls.append(call)
        return "sha256:1"

    monkeypatch.setattr("cli.instantiate.push_model", push)
    return calls


ONLY = """\
instantiate:
  base_model: localhost:1/runner
  staging_dest: localhost:1/model
  weights: https://example.com/engine.tar
  system_prompt: Be brief.
"""


def test_the_section_alone_is_enough_and_variables_come_first(tmp_path, pushed):
    command = ["instantiate", config(tmp_path, ONLY), "-e", "SYSTEM_PROMPT=a=b", "--env", "END_ID="]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert (done.exit_code, done.output) == (0, "sha256:1\n")
    variables = {"COG_WEIGHTS": "https://example.com/engine.tar", "SYSTEM_PROMPT": "a=b", "END_ID": ""}
    assert pushed == [("localhost:1/runner", "localhost:1/model", variables)]


def test_variables_alone_are_enough(pushed):
    command = [
        "instantiate",
        "--base",
        "localhost:1/a",
        "--dest",
        "localhost:1/b",
        "-e",
        "COG_WEIGHTS=https://x/y",
    ]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    assert pushed == [("localhost:1/a", "localhost:1/b", {"COG_WEIGHTS": "https://x/y"})]


@pytest.fixture
def registry(monkeypatch):
    """Says of each image what it is told to: `registry(manifest, config)`."""

    def says(manifest: str, config: str = "{}") -> None:
        def skopeo(command: list[str], *_: object) -> str:
            return config if "--config" in command else manifest

        monkeypatch.setattr("cli.instantiate._skopeo", skopeo)

    return says


IMAGE = '{"config": {}, "layers": []}'


@pytest.mark.parametrize(
    ("manifest", "image_config"),
    [
        ("no JSON", "{}"),
        ("[]", "{}"),
        ('{"schemaVersion": 1}', "{}"),
        ('{"config": null}', "{}"),
        ('{"config": {}, "mediaType": []}', "{}"),
        (IMAGE, ""),
        (IMAGE, "[]"),
        (IMAGE, '{"config": {"Env": [1]}}'),
        (IMAGE, '{"config": {"Labels": []}}'),
    ],
)
def test_another_artifact_than_an_image_is_refused(registry, manifest, image_config):
    registry(manifest, image_config)
    with pytest.raises(ModelImageFailed, match="localhost:1/a is not the image of a runner"):
        push_model("localhost:1/a", "localhost:1/b", {})


@pytest.mark.parametrize(
    "image_config", ["{}", '{"config": null}', '{"config": {"Env": null, "Labels": null}}']
)
def test_an_image_may_leave_everything_open(registry, image_config):
    registry(IMAGE, image_config)
    assert push_model("localhost:1/a", "localhost:1/b", {"A": "1"}).startswith("sha256:")


def test_a_place_for_temporary_files_that_is_missing_is_named(registry, monkeypatch):
    registry(IMAGE)

    def no_place(**_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryDirectory", no_place)
    with pytest.raises(
        OutputRefused, match=r"No usable temporary directory found\. Set TMPDIR to a writable"
    ):
        push_model("localhost:1/a", "localhost:1/b", {})


@pytest.mark.parametrize("status", [0, 1])
def test_a_registry_that_answers_in_no_text_is_no_image(status, tmp_path, monkeypatch):
    skopeo = tmp_path / "skopeo"
    skopeo.write_text(f"#!/bin/sh\nprintf '\\377'\nprintf '\\377' >&2\nexit {status}\n")
    skopeo.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ModelImageFailed, match="cannot be pushed to localhost:1/b: "):
        push_model("localhost:1/a", "localhost:1/b", {})


def test_a_skopeo_that_says_nothing_is_told_with_its_status(tmp_path, monkeypatch):
    skopeo = tmp_path / "skopeo"
    skopeo.write_text("#!/bin/sh\nexit 3\n")
    skopeo.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ModelImageFailed, match=r"localhost:1/b: skopeo ended with status 3\. Install"):
        push_model("localhost:1/a", "localhost:1/b", {})


def test_without_weights_nothing_is_pushed(pushed):
    with pytest.raises(ConfigInvalid, match=r"the command line.*-e COG_WEIGHTS"):
        instantiate(None, "localhost:1/a", "localhost:1/b")
    assert pushed == []


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        ("hf_secret", "a variable is given as NAME=VALUE"),
        ("=hf_secret", "'' cannot be the name"),
        ("HF-TOKEN=hf_secret", "'HF-TOKEN' cannot be the name"),
        ("HF_TOKEN=hf_secret\0", "the value of HF_TOKEN holds a null character"),
    ],
)
def test_what_is_no_variable_is_refused_without_its_value(variable, told):
    done = CliRunner().invoke(app, ["instantiate", "-e", variable], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert told in done.output
    assert "secret" not in done.output


def test_a_key_of_the_section_that_there_is_not_is_named_with_its_line(tmp_path):
    with pytest.raises(ConfigInvalid, match=r"line 2: instantiate\.wieghts"):
        instantiate(config(tmp_path, "instantiate:\n  wieghts: x\n"), None, None)


def test_without_skopeo_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelImageFailed, match="skopeo is not installed"):
        instantiate(config(tmp_path, CONFIG.format(weights="https://example.com/engine.tar")), None, None)
