"""What the files of a model say about its build: those that are missing, those that will be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.engines.vllm import draft_of
from builder.sources.download import TOKENIZER, Download, tokenizer_form
from builder.sources.hub import HubModel
from builder.sources.model import is_url, local_folder, model_of
from shared.config import VLLMConfig
from shared.errors import CogTritonError, DownloadFailed, TokenizerWillBeMade
from shared.vllm_arguments import SPECULATIVE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from builder.findings import Findings
    from shared.config import BuildConfig, CogTRTLLMConfig
    from shared.config.document import Place


def models_in(config: BuildConfig | CogTRTLLMConfig, folder: Path | None) -> Iterator[tuple[Place, Download]]:
    """What a build fetches, and where the config names it; its paths start at `folder`."""
    wanted = model_of(config)
    if wanted is not None:
        yield (wanted.key,), Download(*wanted[1:], folder)
    if isinstance(config, VLLMConfig) and (draft := draft_of(config, folder)) is not None:
        yield (SPECULATIVE, "model"), draft


def check_folder(place: Place, model: Download, findings: Findings) -> None:
    """Report a name that the hub does not allow, and what is wrong with a model that is a folder."""
    try:
        found = model.look()
    except CogTritonError as error:
        findings.error(place, error)
    else:
        if found is not None:
            _check_tokenizer(place, model, {file.name for file in found.path.iterdir()}, findings)


def check_on_hub(place: Place, model: Download, token: str | None, findings: Findings) -> str | None:
    """Report what the hub's list of the model's files shows; nothing for other models.

    Return why the hub's list could not be read, or None.
    """
    if is_url(model.model) or local_folder(model.model, model.beside) is not None:
        return None
    try:
        files = HubModel(model.model, model.revision, token).files()
        model.wanted(files)
    except DownloadFailed as error:
        return str(error.details["reason"])
    except CogTritonError as error:
        findings.error(place, error)
    else:
        _check_tokenizer(place, model, files, findings)
    return None


def _check_tokenizer(place: Place, model: Download, files: Collection[str], findings: Findings) -> None:
    form = tokenizer_form(files)
    if model.needs_tokenizer and form is not None and form != (TOKENIZER,):
        findings.warn(place, TokenizerWillBeMade(files=" and ".join(form)))
