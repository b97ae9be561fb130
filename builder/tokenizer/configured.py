"""tokenizer.json as transformers would make it from all files of the tokenizer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer

from builder.model_json import read_object
from builder.tokenizer.settings import CONFIG, TOKENIZER, read_settings
from shared.errors import CheckpointInvalid, CogTritonError, TokenizerFilesDisagree

if TYPE_CHECKING:
    from pathlib import Path

    from builder.tokenizer.settings import TokenizerSettings

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def configured(folder: Path) -> str | None:
    """The text of the tokenizer.json to serve; None if the one in `folder` says all that the other files say.

    Raises CheckpointInvalid for files that cannot be read, TokenizerFilesDisagree.
    """
    content = read_object(folder / TOKENIZER)
    settings = read_settings(folder)
    try:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception:  # the library raises no narrower type
        return None  # what loads it for good says so
    try:
        changes = (
            _add_tokens(tokenizer, settings)
            | _set_prefix_space(content, settings)
            | _set_ends(tokenizer, settings)
        )
    except (CogTritonError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare ones, and panics
        raise CheckpointInvalid(reason=f"{TOKENIZER} cannot be used ({error})") from None
    return json.dumps(content | changes, ensure_ascii=False) if changes else None


def _add_tokens(tokenizer: Tokenizer, settings: TokenizerSettings) -> dict[str, Any]:
    """Add the tokens to `tokenizer`; return what changes."""
    before = _entries(tokenizer)
    special = {entry["content"] for entry in before if entry["special"]}
    special |= {token.content for token in settings.special}
    known = {entry["content"] for entry in before} | {one.content for one in settings.added.values()}
    known -= settings.described
    new = [token for token in settings.special if token.content not in known]
    for token in (*[one for _, one in sorted(settings.added.items())], *new):
        token.special = token.special or token.content in special
        tokenizer.add_tokens([token])
    for id_, token in settings.added.items():
        if (other := tokenizer.token_to_id(token.content)) != id_:
            reason = f"{settings.source} gives the token {token.content!r} the id {id_}"
            raise TokenizerFilesDisagree(reason=f"{reason}, and with {TOKENIZER} it gets {other}")
    after = _entries(tokenizer)
    return {} if after == before else {"added_tokens": after}


def _entries(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """As tokenizer.json has them."""
    found: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
    return [
        {"id": id_, "content": token.content, **{flag: getattr(token, flag) for flag in _FLAGS}}
        for id_, token in sorted(found.items())
    ]


def _set_prefix_space(content: dict[str, Any], settings: TokenizerSettings) -> dict[str, Any]:
    """What changes so that a text begins as with a space, or not."""
    wanted = settings.add_prefix_space
    pre = content.get("pre_tokenizer")
    if wanted is None or not isinstance(pre, dict):
        return {}
    if pre.get("add_prefix_space", wanted) != wanted:
        return {"pre_tokenizer": pre | {"add_prefix_space": wanted}}
    if settings.kind == "Llama" and "add_prefix_space" not in pre and _begins_with_space(content) != wanted:
        says = "puts a space before each text" if not wanted else "puts no space before a text"
        reason = f"add_prefix_space in {CONFIG} is {str(wanted).lower()}, and {TOKENIZER} {says}"
        raise TokenizerFilesDisagree(reason=reason)
    return {}


def _begins_with_space(content: dict[str, Any]) -> bool:
    """Whether a part of the tokenizer puts one before each text, in the way of SentencePiece."""
    parts = [*_parts(content.get("normalizer")), *_parts(content.get("pre_tokenizer"))]
    return any(
        part.get("type") == "Prepend" or part.get("prepend_scheme", "never") != "never" for part in parts
    )


def _parts(value: Any) -> list[dict[str, Any]]:
    """The parts of a sequence of normalizers or pre-tokenizers; one that stands alone."""
    if not isinstance(value, dict):
        return []
    inner = value.get("normalizers") or value.get("pretokenizers")
    return [value] if inner is None else [part for one in inner for part in _parts(one)]


def _set_ends(tokenizer: Tokenizer, settings: TokenizerSettings) -> dict[str, Any]:
    """What changes so that the BOS stands before each prompt, and the EOS behind it, where the class of
    transformers decides that.
    """
    if settings.add_bos is None:
        return {}
    before = _names(settings, "bos_token", wanted=settings.add_bos)
    behind = _names(settings, "eos_token", wanted=bool(settings.add_eos))
    ids = {name: [tokenizer.token_to_id(name)] for name in (*before, *behind)}
    plain = tokenizer.encode("", add_special_tokens=False).ids
    wanted = [id_ for name in before for id_ in ids[name]] + plain
    if tokenizer.encode("").ids == wanted + [id_ for name in behind for id_ in ids[name]]:
        return {}
    single, second = (
        [
            *({"SpecialToken": {"id": name, "type_id": type_id}} for name in before),
            {"Sequence": {"id": text, "type_id": type_id}},
            *({"SpecialToken": {"id": name, "type_id": type_id}} for name in behind),
        ]
        for text, type_id in (("A", 0), ("B", 1))
    )
    tokens = {name: {"id": name, "ids": found, "tokens": [name]} for name, found in ids.items()}
    template = {"type": "TemplateProcessing", "single": single, "pair": [*single, *second]}
    return {"post_processor": {**template, "special_tokens": tokens}}


def _names(settings: TokenizerSettings, kind: str, *, wanted: bool) -> list[str]:
    """The token `kind` if it is wanted. Raises TokenizerFilesDisagree when there is none."""
    if not wanted:
        return []
    if (token := settings.named.get(kind)) is None:
        adds = f"add_{kind}"
        raise TokenizerFilesDisagree(reason=f"{adds} is true in {CONFIG}, or by default, and {kind} is null")
    return [token]
