"""API keys: who may call, and under which name calls are counted."""

from __future__ import annotations

import hashlib
import os
import re
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from runner.setting_files import text_of
from shared.errors import ApiKeyInvalid, SettingInvalid
from shared.logs import bind_client, bind_contextvars, get_logger, register_secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from runner.front.http import Request
    from runner.front.router import Handler
    from runner.settings import Settings

log = get_logger()

_SCHEME = "bearer"
_SECONDS_BETWEEN_LOOKS = 1
# With it, nobody can choose keys by their digests, so that the time of a look-up reveals nothing.
_SECRET = os.urandom(hashlib.blake2b.MAX_KEY_SIZE)


class Holder(NamedTuple):
    """Who sent a key."""

    name: str
    """For people; that of a key without one is its place, which changes with the keys before it."""
    identity: str
    """Whose predictions, limits and part of the prefix cache are used; keys with the same name share them."""


def parse_keys(
    given: Sequence[str], setting: str, before: int = 0, *, shown: str = "***"
) -> dict[bytes, Holder]:
    """The holder of each key, by its digest.

    One is `KEY` or `NAME KEY`, or empty. A key without a name is named by its place, behind the `before` keys
    of other settings: `key 1`, `key 2`. Raises SettingInvalid, which shows `shown` for the setting's value.
    """
    holders: dict[bytes, Holder] = {}
    for one in filter(None, map(str.strip, given)):
        if one.startswith("#"):  # meant as a comment, which a comma does not end
            reason = "no key or name may begin with #: only API_KEYS_FILE may have comments"
            raise SettingInvalid(setting=setting, value=shown, reason=reason)
        *name, key = one.split(maxsplit=1)
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise SettingInvalid(
                setting=setting, value=shown, reason="each key must be KEY or NAME KEY, in printable ASCII"
            )
        register_secret(key)
        digest = _digest(key)
        if name:
            holders[digest] = Holder(name[0], name[0])
        elif digest not in holders:
            # Names have no spaces: no name is such an identity.
            holders[digest] = Holder(f"key {before + len(holders) + 1}", f"key {digest.hex()}")
    if not holders:
        raise SettingInvalid(setting=setting, value=shown, reason="it has no key")
    return holders


class Keys:
    """The accepted keys. Those in a file may change while the runner runs."""

    def __init__(
        self,
        holders: Mapping[bytes, Holder],
        file: Path | None = None,
        wanted: str = "one of the keys of this runner",
    ) -> None:
        """`wanted`: what to send, for those who sent something else."""
        self._fixed = dict(holders)
        self._file = file
        self._wanted = wanted
        self._of_file: dict[bytes, Holder] = {}
        self._version: tuple[int, int, int] | None = None
        self._problem = ""
        self._looked_at = 0.0
        if file is not None:
            self._of_file = self._read(file)

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """The keys in the settings; None if there are none. Raises SettingInvalid."""
        for setting, is_set in (
            ("COG_API_NEEDS_KEY", settings.cog_api_needs_key),
            ("METRICS_NEED_KEY", settings.metrics_need_key),
        ):
            if is_set and settings.api_keys is None and settings.api_keys_file is None:
                reason = "neither API_KEYS nor API_KEYS_FILE is set"
                raise SettingInvalid(setting=setting, value="true", reason=reason)
        fixed = {}
        if settings.api_keys is not None:
            fixed = parse_keys(re.split(r"[,\n]", settings.api_keys.get_secret_value()), "API_KEYS")
        if not fixed and settings.api_keys_file is None:
            return None
        return cls(fixed, settings.api_keys_file)

    @classmethod
    def of_operator(cls, key: str) -> Self:
        """The operator's one key. Raises SettingInvalid."""
        operator = Holder("operator", "operator")
        holders = dict.fromkeys(parse_keys(key.split("\n"), "OPERATOR_KEY"), operator)
        return cls(holders, wanted="the operator's key (OPERATOR_KEY)")

    def holder_of(self, authorization: str | None) -> Holder:
        """Who sent the key in a header `Authorization`. Raises ApiKeyInvalid."""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != _SCHEME or not key:
            raise ApiKeyInvalid(reason="No API key was sent", wanted=self._wanted)
        self._look()
        sent = _digest(key.strip())
        holder = self._of_file.get(sent) or self._fixed.get(sent)
        if holder is None:
            raise ApiKeyInvalid(reason="That API key is not accepted here", wanted=self._wanted)
        return holder

    def _look(self) -> None:
        """Read the file again when it has changed; an unusable one changes nothing, and is tried again."""
        now = time.monotonic()
        if self._file is None or now - self._looked_at < _SECONDS_BETWEEN_LOOKS:
            return
        self._looked_at = now
        try:
            if _version(self._file) != self._version:
                self._of_file = self._read(self._file)
                log.info("the API keys were read again", count=len(self._of_file))
            self._problem = ""
        except SettingInvalid as problem:
            if str(problem) != self._problem:
                log.warning("the API keys cannot be read: the previous ones are kept", error=str(problem))
            self._problem = str(problem)

    def _read(self, file: Path) -> dict[bytes, Holder]:
        version = _version(file)
        lines = text_of(file, "API_KEYS_FILE").split("\n")
        keys = [line for line in lines if not line.lstrip().startswith("#")]
        holders = parse_keys(keys, "API_KEYS_FILE", len(self._fixed), shown=str(file))
        self._version = version  # only now: what stands in the way may pass without a change of the file
        return holders


def needs_key(handler: Handler, keys: Keys | None) -> Handler:
    """`handler`, only for those who send one of the keys, if there are any.

    Then `Request.key` is its holder's identity, and log lines include the name. Others get ApiKeyInvalid.
    """
    if keys is None:
        return handler

    async def handle(request: Request) -> None:
        holder = keys.holder_of(request.header(b"authorization"))
        request.key = holder.identity
        bind_contextvars(key=holder.name)
        bind_client(holder.name)
        await handler(request)

    return handle


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        state = file.stat()
    except OSError:  # reading it says why
        return None
    # ctime: `cp -p` and others set mtime as they like, and `chmod` leaves it.
    return state.st_ctime_ns, state.st_ino, state.st_size


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=32, key=_SECRET).digest()
