"""Settings from environment variables."""

import json

import pytest

from runner.settings import Settings
from shared.errors import SettingInvalid


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


def test_a_section_that_is_no_mapping_is_named(tmp_path):
    (tmp_path / "config.yaml").write_text("instantiate: [x]")
    settings = Settings.from_environment({"COG_TRITON_CONFIG": str(tmp_path / "config.yaml")})
    with pytest.raises(SettingInvalid, match="but instantiate must be a mapping"):
        settings.instantiate({})


def test_without_any_section_there_are_no_server_arguments():
    settings = Settings.from_environment({})
    for server in ({}, {"server": None}, {"server": {"tensorrt_llm": None}}):
        assert settings.server_arguments({"instantiate": server}) == {}


def test_a_secret_that_is_not_text_is_not_shown():
    with pytest.raises(SettingInvalid, match=r"HOSTS_SECRET is '\*\*\*', but it is not UTF-8"):
        Settings.from_environment({"HOSTS_SECRET": "\udcff" * 16}).secret_of_hosts()
