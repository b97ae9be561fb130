"""Settings from environment variables."""

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
    [("END_ID", "x"), ("END_ID", "-2"), ("RESPONSE_TIMEOUT", "0"), ("LOG_PERFORMANCE_METRICS", "perhaps")],
)
def test_what_is_not_valid_is_named(name, value):
    with pytest.raises(SettingInvalid, match=f"The setting {name} is '{value}'"):
        Settings.from_environment({name: value})
