"""What the files of a model say about its build: those that are missing, those that will be made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.sources.download import TOKENIZER, Download, tokenizer_form
from builder.sources.hub import HubModel
from builder.sources.model import is_url, local_folder
from shared.errors import CogTritonError, DownloadFailed, TokenizerWillBeMade

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from builder.findings import Findings
    from builder.sources.model import ModelSource


def check_folder(model: ModelSource, beside: Path | None, findings: Findings) -> None:
    """Report a name that the hub does not allow, and what is wrong with a model that is a folder."""
    try:
        found = Download(*model[1:], beside).look()
    except CogTritonError as error:
        findings.error((model.key,), error)
    else:
        if found is not None:
            _check_tokenizer(model, {file.name for file in found.path.iterdir()}, findings)


def check_on_hub(
    model: ModelSource, beside: Path | None, token: str | None, findings: Findings
) -> str | None:
    """Report what the hub's list of the model's files shows; nothing for other models.

    Return why the hub's list could not be read, or None.
    """
    if is_url(model.model) or local_folder(model.model, beside) is not None:
        return None
    try:
        files = HubModel(model.model, model.revision, token).files()
        Download(*model[1:], beside).wanted(files)
    except DownloadFailed as error:
        return str(error.details["reason"])
    except CogTritonError as error:
        findings.error((model.key,), error)
    else:
        _check_tokenizer(model, files, findings)
    return None


def _check_tokenizer(model: ModelSource, files: Collection[str], findings: Findings) -> None:
    form = tokenizer_form(files)
    if form is not None and form != (TOKENIZER,):
        findings.warn((model.key,), TokenizerWillBeMade(files=" and ".join(form)))
