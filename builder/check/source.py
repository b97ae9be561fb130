"""The check of the config at an address, with the build config that an official model's config refers to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from builder.check.report import check, unreadable
from builder.sources.config import folder_of, read_config, shown
from shared.config import OfficialConfig
from shared.errors import CogTritonError, ConfigInvalid, ConfigUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.check.report import Report

_MAX_LEVELS = 8


def check_source(source: str, gpus: int | None = None) -> Report:
    """Check the config at `source`: a URL, a data: URL or a path. Raises nothing: everything is in the
    report.
    """
    try:
        return _check(source, gpus)
    except CogTritonError as error:
        return unreadable(error, shown(source))


def _check(source: str, gpus: int | None) -> Report:
    report = check(read_config(source), shown(source), gpus, folder_of(source))
    if not isinstance(report.config, OfficialConfig):
        return report
    official = report.config
    address, text = _named(source, official.build.config)
    built = check(text, shown(address), gpus, folder_of(address), official.instantiate)
    built = replace(built, diagnostics=(*report.diagnostics, *built.diagnostics))
    if isinstance(built.config, OfficialConfig):
        raise ConfigInvalid(source=shown(address), reason="it names a build config instead of being one")
    if built.config is None:
        return built
    return replace(built, config=built.config.model_copy(update={"instantiate": official.instantiate}))


def _named(source: str, config: str) -> tuple[str, str]:
    """Address and text of the build config, at a path from the folder of `source`, or from one above it."""
    errors: list[ConfigUnreachable] = []
    for address in _candidates(source, config):
        try:
            return address, read_config(address)
        except ConfigUnreachable as error:
            if "://" in config:
                raise
            errors.append(error)
    beside = f"beside {shown(source)}, whose build.config names it ({errors[0].details['reason']})"
    reason = f"not {beside}, nor in a folder above that"
    raise ConfigUnreachable(source=shown(config), reason=reason) from errors[0]


def _candidates(source: str, config: str) -> Iterator[str]:
    if config.startswith(("http://", "https://")):
        yield config
    elif source.startswith(("http://", "https://")):
        folders = urlsplit(source).path.count("/")
        for up in range(min(folders, _MAX_LEVELS)):
            yield urljoin(source, "../" * up + config)
    else:
        nearest = folder_of(source) or Path.cwd()
        for folder in [nearest, *nearest.parents][:_MAX_LEVELS]:
            yield str(folder / config)
