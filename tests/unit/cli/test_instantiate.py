"""What `cog-triton instantiate` makes of a config; tests/images pushes the result."""

import pytest

from cli.instantiate import instantiate, with_environment
from shared.errors import ConfigInvalid, ModelImageFailed

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
    with pytest.raises(ConfigInvalid, match="must be the URL"):
        instantiate(config(tmp_path, CONFIG.format(weights="./engine.tar")), None, None)


def test_without_skopeo_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelImageFailed, match="skopeo is not installed"):
        instantiate(config(tmp_path, CONFIG.format(weights="https://example.com/engine.tar")), None, None)
