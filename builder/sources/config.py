"""Read the config at a URL, a data URL or a path. Its text is not examined here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import ConfigNotYaml, ConfigTooLarge, ConfigUnreachable
from shared.http import Unreachable, read
from shared.secrets import public_address
from shared.source import data_content, local_path, opened_file, scheme

if TYPE_CHECKING:
    from pathlib import Path

MAX_CONFIG_BYTES = 1 << 20
_SECONDS = 60.0  # over HTTP, for everything together
_SHOWN_LENGTH = 200


def read_config(source: str) -> str:
    """The text at `source`: an http(s), data: or file: URL, or a path; at most 1 MiB of UTF-8.

    Raises ConfigUnreachable when it cannot be fetched, ConfigTooLarge when it is too large, ConfigNotYaml
    when it is not UTF-8.
    """
    content = _read(source)
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigTooLarge(source=shown(source), limit=MAX_CONFIG_BYTES)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigNotYaml(source=shown(source), reason=f"byte {error.start} is not UTF-8") from None


def folder_of(source: str) -> Path | None:
    """The folder where the paths in the config at `source` start; None for one that is not in a file."""
    try:
        path = local_path(source)
    except Unreachable:
        return None
    return path and path.absolute().parent


def shown(source: str) -> str:
    """`source` as errors and logs may show it: without credentials, query or inline content."""
    if scheme(source) == "data":
        return "(data: URL)"
    if not source:
        return "(empty)"
    source = public_address(source)
    return source if len(source) <= _SHOWN_LENGTH else f"{source[:_SHOWN_LENGTH]}..."


def _read(source: str) -> bytes:
    """At most one byte more than a config may have."""
    try:
        if not source:  # a variable that is not set; as a path it would be the working directory
            raise Unreachable("it has no name")
        if scheme(source) == "data":
            return data_content(source)
        path = local_path(source)
        if path is None:
            return read(source, MAX_CONFIG_BYTES + 1, _SECONDS)
        content = bytearray()
        with opened_file(path, lambda _done, _total: None) as stream:
            while chunk := stream.read(MAX_CONFIG_BYTES + 1 - len(content)):
                content += chunk
        return bytes(content)
    except Unreachable as error:
        raise ConfigUnreachable(source=shown(source), reason=error.reason) from None
