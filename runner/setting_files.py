"""What is in the files that settings name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shared.errors import SettingInvalid
from shared.validation import wanted

_MAX_BYTES = 16 << 20


def content_of(file: Path, setting: str) -> bytes:
    """What the file in a setting holds; a pipe or a device might never end. Raises SettingInvalid."""
    from shared.http import Unreachable
    from shared.source import opened_file

    content = bytearray()
    try:
        with opened_file(file, lambda _done, _total: None) as stream:
            while len(content) <= _MAX_BYTES and (chunk := stream.read(1 << 20)):
                content += chunk
    except Unreachable as problem:
        raise SettingInvalid(setting=setting, value=str(file), reason=problem.reason) from None
    if len(content) > _MAX_BYTES:
        reason = f"it has more than {_MAX_BYTES} bytes"
        raise SettingInvalid(setting=setting, value=str(file), reason=reason)
    return bytes(content)


def text_of(file: Path, setting: str) -> str:
    """The text of the file in a setting, without the mark that editors of Windows begin one with.

    Raises SettingInvalid.
    """
    try:
        return content_of(file, setting).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingInvalid(setting=setting, value=str(file), reason="it is not UTF-8") from None


def section_of(source: str | None) -> dict[str, Any]:
    """The section `instantiate` of what COG_TRITON_CONFIG names, or nothing.

    Raises SettingInvalid, ConfigNotYaml and ConfigDuplicateKey.
    """
    if source is None:
        return {}
    from shared.config import Instantiate
    from shared.config.document import parse
    from shared.http import Unreachable
    from shared.source import data_content, scheme

    kind = scheme(source)
    inline = kind == "data"
    shown = "(data: URL)" if inline else source
    try:
        if kind and not inline:
            raise Unreachable("it is neither a path nor a data: URL")
        text = data_content(source).decode() if inline else text_of(Path(source), "COG_TRITON_CONFIG")
        data = parse(text, f"{shown} of COG_TRITON_CONFIG").data
        section = Instantiate.model_validate(data.get("instantiate") or {})
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except Unreachable as problem:
        reason = problem.reason
    except ValidationError as invalid:
        first = invalid.errors()[0]
        place = ".".join(map(str, ("instantiate", *first["loc"])))
        reason = f"{place} {wanted(first, mapping='a mapping')}"
    else:
        dumped = section.model_dump(mode="json", exclude_unset=True)
        if section.weights is not None:
            dumped["weights"] = section.weights  # with the signature that dumps leave out: it is fetched
        return dumped
    raise SettingInvalid(setting="COG_TRITON_CONFIG", value=shown, reason=reason)
