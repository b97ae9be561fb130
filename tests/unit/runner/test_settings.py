"""Settings from environment variables."""

import json

import pytest

from runner.setting_files import text_of
from runner.settings import Settings
from shared.errors import ConfigNotYaml, EngineArchiveMalformed, SettingInvalid


def test_an_empty_variable_counts_as_unset():
    assert Settings.from_environment({"END_ID": "", "LOG_PERFORMANCE_METRICS": ""}).end_id is None


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_a_switch_means_what_it_says(text, value):
    assert Settings.from_environment({"LOG_PERFORMANCE_METRICS": text}).log_performance_metrics is value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("END_ID", "x"),
        ("END_ID", "-2"),
        ("RESPONSE_TIMEOUT", "0"),
        ("SETUP_TIMEOUT", "inf"),
        ("HOSTS_TIMEOUT", "1e10"),
        ("LOG_PERFORMANCE_METRICS", "perhaps"),
    ],
)
def test_what_is_not_valid_is_named(name, value):
    with pytest.raises(SettingInvalid, match=f"The setting {name} is '{value}'"):
        Settings.from_environment({name: value})


@pytest.mark.parametrize(
    ("in_file", "in_engine", "effective"),
    [
        (None, None, {}),
        (None, {"a": 1}, {"a": 1}),
        ({"b": 2}, {"a": 1}, {"b": 2}),
        ({"b": 2}, None, {"b": 2}),
    ],
)
def test_server_arguments_of_the_file_come_before_those_of_the_engine(
    tmp_path, in_file, in_engine, effective
):
    def config(arguments):
        return {"instantiate": {"server": {"tensorrt_llm": {"args": arguments}}} if arguments else None}

    (tmp_path / "config.yaml").write_text(json.dumps(config(in_file)))
    settings = Settings.from_environment({"COG_TRITON_CONFIG": str(tmp_path / "config.yaml")})
    assert settings.server_arguments(config(in_engine)) == effective


def test_the_address_in_the_file_keeps_its_signature(tmp_path):
    """It was dropped, as where configs are written, and the bucket refused the rest."""
    address = "https://bucket.example/engine.tar?signature=x"
    (tmp_path / "config.yaml").write_text(f"instantiate: {{weights: '{address}'}}")
    settings = Settings.from_environment({"COG_TRITON_CONFIG": str(tmp_path / "config.yaml")})
    assert settings.instantiate({})["weights"] == address


def test_a_section_that_is_no_mapping_is_named(tmp_path):
    (tmp_path / "config.yaml").write_text("instantiate: [x]")
    settings = Settings.from_environment({"COG_TRITON_CONFIG": str(tmp_path / "config.yaml")})
    with pytest.raises(SettingInvalid, match="but instantiate must be a mapping"):
        settings.instantiate({})


def test_without_any_section_there_are_no_server_arguments():
    settings = Settings.from_environment({})
    for server in ({}, {"server": None}, {"server": {"tensorrt_llm": None}}):
        assert settings.server_arguments({"instantiate": server}) == {}


@pytest.mark.parametrize("value", ["x", 1, [1], True, {"server": "x"}, {"server": {"tensorrt_llm": [1]}}])
def test_a_section_of_the_engine_that_is_no_object_is_coded(value):
    with pytest.raises(EngineArchiveMalformed, match=r"E4100 .* in its config\.json must be an object\."):
        Settings.from_environment({}).server_arguments({"instantiate": value})


def test_a_secret_that_is_not_text_is_not_shown():
    with pytest.raises(SettingInvalid, match=r"HOSTS_SECRET is '\*\*\*', but it is not UTF-8"):
        Settings.from_environment({"HOSTS_SECRET": "\udcff" * 16}).secret_of_hosts()


@pytest.mark.parametrize("name", ["ENGINE_DIR", "WEIGHTS_CACHE", "SYSTEM_PROMPT", "COG_WEIGHTS", "END_ID"])
def test_a_setting_that_is_not_text_is_named(name):
    with pytest.raises(SettingInvalid, match=rf"The setting {name} is '/x\\udcff', but it is not UTF-8\."):
        Settings.from_environment({name: "/x\udcff"})


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 25)
    with pytest.raises(
        SettingInvalid, match=r"API_KEYS_FILE is '.*sparse', but it has more than 16777216 bytes"
    ):
        text_of(tmp_path / "sparse", "API_KEYS_FILE")


@pytest.mark.parametrize("source", ["http://user:pa55word@127.0.0.1:1/x.yaml", "file:///x.yaml"])
def test_the_config_file_is_at_no_address(source):
    settings = Settings.from_environment({"COG_TRITON_CONFIG": source})
    with pytest.raises(SettingInvalid, match="but it is neither a path nor a data: URL") as refused:
        settings.instantiate({})
    assert "pa55word" not in str(refused.value)


def test_a_config_that_is_no_yaml_is_told_with_its_setting():
    settings = Settings.from_environment({"COG_TRITON_CONFIG": "data:,{"})
    with pytest.raises(
        ConfigNotYaml, match=r"The config \(data: URL\) of COG_TRITON_CONFIG is not valid YAML"
    ):
        settings.instantiate({})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://user:pa55word@there/x?key=pa55word", "'http://there/x'"),
        ("-----BEGIN PRIVATE KEY-----\npa55word", "'***'"),
        ("9" * 5000, f"'{'9' * 200}...'"),
        (2, "2"),
        (None, "not set"),
    ],
)
def test_a_value_is_shown_without_secrets_and_not_at_length(value, shown):
    error = SettingInvalid(setting="X", value=value, reason="it is wrong")
    assert str(error).startswith(f"E4002 SettingInvalid: The setting X is {shown}, but it is wrong.")
