import os
import subprocess
import sys
import timeit
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from runner.front.keys import Keys
from runner.settings import Settings
from shared.errors import ApiKeyInvalid, SettingInvalid


def keys(**variables):
    return Keys.of(Settings.from_environment(variables))


def test_without_keys_none_is_needed():
    assert keys() is None


def test_keys_of_the_environment():
    known = keys(API_KEYS="alice sk-1, sk-2")
    assert known.holder_of("Bearer sk-1").name == "alice"
    assert known.holder_of("bearer  sk-2 ").name == "key 2"


@pytest.mark.parametrize("header", [None, "", "sk-1", "Basic sk-1", "Bearer", "Bearer "])
def test_no_key(header):
    with pytest.raises(ApiKeyInvalid, match="No API key was sent"):
        keys(API_KEYS="sk-1").holder_of(header)


@pytest.mark.parametrize("key", ["sk-", "sk-11", "alice", "sk-1\xe9"])
def test_a_wrong_key(key):
    with pytest.raises(
        ApiKeyInvalid, match=r"API key is not accepted here\. Send one of the keys of this runner as"
    ):
        keys(API_KEYS="alice sk-1").holder_of(f"Bearer {key}")


def test_nobody_can_choose_a_key_by_its_digest():
    """So that time tells neither how much of a key is right nor which one was meant."""
    command = [
        sys.executable,
        "-c",
        "from runner.front.keys import parse_keys; print(parse_keys(['sk-1'], ''))",
    ]
    assert subprocess.check_output(command) != subprocess.check_output(command)


def seconds(call):
    """What it takes, without what comes between."""
    return min(timeit.repeat(call, number=20, repeat=10)) / 20


def test_ten_thousand_keys_take_no_longer_than_ten():
    few, many = (keys(API_KEYS=",".join(f"sk-{n:030}" for n in range(count))) for count in (10, 10_000))
    asked = [partial(known.holder_of, f"Bearer sk-{7:030}") for known in (few, many)]
    assert seconds(asked[1]) < 20 * seconds(asked[0])


def test_keys_without_a_name_are_told_apart(tmp_path):
    (tmp_path / "keys").write_text("sk-4\nsk-5\n")
    known = keys(API_KEYS="sk-1,sk-1,sk-2,alice sk-3", API_KEYS_FILE=str(tmp_path / "keys"))
    names = [known.holder_of(f"Bearer sk-{one}").name for one in range(1, 6)]
    assert names == ["key 1", "key 2", "alice", "key 4", "key 5"]


def test_a_file_is_read_again_when_it_changes(tmp_path, monkeypatch):
    monkeypatch.setattr("runner.front.keys._SECONDS_BETWEEN_LOOKS", 0)
    file = tmp_path / "keys"
    file.write_text("# ours\nalice sk-1\n")
    known = keys(API_KEYS_FILE=str(file))
    assert known.holder_of("Bearer sk-1").name == "alice"

    def replace(content):
        new = tmp_path / "new"
        new.write_bytes(content)
        new.rename(file)

    replace(b"bob sk-2\n")
    assert known.holder_of("Bearer sk-2").name == "bob"
    with pytest.raises(ApiKeyInvalid):
        known.holder_of("Bearer sk-1")
    for unusable in (b"\n# none\n", b"\xff"):
        replace(unusable)
        assert known.holder_of("Bearer sk-2").name == "bob"
    file.unlink()
    assert known.holder_of("Bearer sk-2").name == "bob"


def test_a_key_is_gone_though_the_file_has_kept_its_time(tmp_path, monkeypatch):
    """As `cp -p` and `rsync --inplace --times` write: the key that was taken away stayed valid."""
    monkeypatch.setattr("runner.front.keys._SECONDS_BETWEEN_LOOKS", 0)
    file = tmp_path / "keys"
    file.write_text("alice sk-1\n")
    known = keys(API_KEYS_FILE=str(file))
    before = file.stat()
    file.write_text("alice sk-2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert known.holder_of("Bearer sk-2").name == "alice"
    with pytest.raises(ApiKeyInvalid):
        known.holder_of("Bearer sk-1")


def test_a_file_is_read_once_its_permissions_are_right(tmp_path, monkeypatch):
    """It was not, until it was written again. root may read everything, so that the system's answer is played."""
    monkeypatch.setattr("runner.front.keys._SECONDS_BETWEEN_LOOKS", 0)
    file = tmp_path / "keys"
    file.write_text("alice sk-1\n")
    known = keys(API_KEYS_FILE=str(file))
    (tmp_path / "new").write_text("alice sk-2\n")
    (tmp_path / "new").chmod(0)
    (tmp_path / "new").rename(file)
    with monkeypatch.context() as refusing:
        refusing.setattr(Path, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
        assert known.holder_of("Bearer sk-1").name == "alice"
    file.chmod(0o600)
    assert known.holder_of("Bearer sk-2").name == "alice"


def test_a_file_that_could_not_be_read_is_tried_again_and_reported_once(tmp_path, monkeypatch):
    """With too many open files it could not: the key that was taken away stayed valid until the next change."""
    monkeypatch.setattr("runner.front.keys._SECONDS_BETWEEN_LOOKS", 0)
    warn = Mock()
    monkeypatch.setattr("runner.front.keys.log.warning", warn)
    file = tmp_path / "keys"
    file.write_text("alice sk-1\n")
    known = keys(API_KEYS_FILE=str(file))
    file.write_text("alice sk-2\n")
    for _ in range(2):  # it happens again later
        warn.reset_mock()
        with monkeypatch.context() as full:
            full.setattr(Path, "open", Mock(side_effect=OSError(24, "Too many open files")))
            for _ in range(3):
                assert known.holder_of("Bearer sk-1").name == "alice"
        warn.assert_called_once()
        assert known.holder_of("Bearer sk-2").name == "alice"
        file.write_text("alice sk-1\n")
        assert known.holder_of("Bearer sk-1").name == "alice"
        file.write_text("alice sk-2\n")


def test_who_holds_a_key_does_not_depend_on_the_other_keys(tmp_path, monkeypatch):
    """A key without a name was known by its place: when the one before it was removed, it had that one's predictions."""
    monkeypatch.setattr("runner.front.keys._SECONDS_BETWEEN_LOOKS", 0)
    file = tmp_path / "keys"

    def identities(*keys):
        return [known.holder_of(f"Bearer {key}").identity for key in keys]

    file.write_text("sk-1\nsk-2\nalice sk-3\n")
    known = keys(API_KEYS_FILE=str(file))
    first, second, alice = identities("sk-1", "sk-2", "sk-3")
    assert len({first, second, alice}) == 3
    assert not any("sk-" in one for one in (first, second, alice))
    (tmp_path / "new").write_text("sk-2\nalice sk-4\nalice sk-5\nsk-6\n")
    (tmp_path / "new").rename(file)
    assert identities("sk-2", "sk-4", "sk-5") == [second, alice, alice]  # a name's key can be replaced
    assert identities("sk-6") != [first]


def test_a_key_in_a_file_may_hold_a_comma(tmp_path):
    """Its parts were keys, and it was none."""
    (tmp_path / "keys").write_text("bob a,b\r\n")
    known = keys(API_KEYS_FILE=str(tmp_path / "keys"))
    assert known.holder_of("Bearer a,b").name == "bob"
    with pytest.raises(ApiKeyInvalid):
        known.holder_of("Bearer a")


@pytest.mark.parametrize("between", [",", ", ", "\u2028", "\x85", "\f"])
def test_a_comment_in_a_file_reaches_to_the_end_of_its_line(tmp_path, between):
    """What came after a comma was a key."""
    (tmp_path / "keys").write_text(f"# alice{between}bob\nsk-1\n")
    known = keys(API_KEYS_FILE=str(tmp_path / "keys"))
    assert known.holder_of("Bearer sk-1").name == "key 1"
    with pytest.raises(ApiKeyInvalid):
        known.holder_of("Bearer bob")


def test_a_file_may_begin_with_the_mark_of_utf8(tmp_path):
    """A comment behind it was a key, and a name or key behind it another one."""
    file = tmp_path / "keys"
    file.write_bytes("\ufeff# ours\nsk-1\n".encode())
    known = keys(API_KEYS_FILE=str(file))
    assert known.holder_of("Bearer sk-1").name == "key 1"
    with pytest.raises(ApiKeyInvalid):
        known.holder_of("Bearer ours")
    file.write_bytes("\ufeffalice sk-1\n".encode())
    assert keys(API_KEYS_FILE=str(file)).holder_of("Bearer sk-1").name == "alice"
    file.write_bytes("\ufeffsk-1\n".encode())
    assert keys(API_KEYS_FILE=str(file)).holder_of("Bearer sk-1").name == "key 1"


def test_both_sources_count(tmp_path):
    (tmp_path / "keys").write_text("bob sk-2")
    known = keys(API_KEYS="alice sk-1", API_KEYS_FILE=str(tmp_path / "keys"))
    assert [known.holder_of(f"Bearer sk-{one}").name for one in (1, 2)] == ["alice", "bob"]


@pytest.mark.parametrize("text", [" , ", "a b c", "a sk-\x01", "schlüssel"])
def test_what_is_no_key_is_refused_and_not_told(text):
    with pytest.raises(SettingInvalid, match=r"^E4002 ") as raised:
        keys(API_KEYS=text)
    assert "sk-" not in str(raised.value)


@pytest.mark.parametrize("text", ["# alice,sk-1", "sk-1, # bob sk-2,sk-3", "#sk-1", "sk-1\n# ours, all"])
def test_a_list_of_keys_has_no_comments(text):
    """What came after a comma in one was a key."""
    with pytest.raises(SettingInvalid, match=r"^E4002 .*: only API_KEYS_FILE may have comments") as raised:
        keys(API_KEYS=text)
    assert "sk-" not in str(raised.value)


def test_a_file_of_comments_alone_has_no_key(tmp_path):
    (tmp_path / "keys").write_text("# sk-1\n")
    with pytest.raises(SettingInvalid, match=r"^E4002 .*API_KEYS_FILE is '/.*', but it has no key\."):
        keys(API_KEYS_FILE=str(tmp_path / "keys"))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SettingInvalid, match=r"API_KEYS_FILE is .*, but there is no such file\."):
        keys(API_KEYS_FILE=str(tmp_path / "keys"))


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_device_is_not_read(tmp_path, make):
    make(tmp_path / "keys")
    with pytest.raises(SettingInvalid, match=r"API_KEYS_FILE is .*, but it is not a file\."):
        keys(API_KEYS_FILE=str(tmp_path / "keys"))


def test_keys_are_not_shown_with_the_settings():
    assert "sk-1" not in repr(Settings.from_environment({"API_KEYS": "sk-1"}))


@pytest.mark.parametrize("setting", ["COG_API_NEEDS_KEY", "METRICS_NEED_KEY"])
def test_a_key_that_is_needed_while_there_are_none_is_no_setting(setting):
    with pytest.raises(SettingInvalid, match=setting):
        keys(**{setting: "true"})
