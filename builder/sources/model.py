"""The model that a config asks for: which one, and whether it is a folder here, a tar at a URL, or on the
hub.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id

from shared.config import CogTRTLLMConfig, CTranslate2Config, MockConfig, VLLMConfig
from shared.errors import ModelFolderUnusable, ModelNotFound
from shared.secrets import public_address
from shared.source import ARCHIVES

if TYPE_CHECKING:
    from shared.config import BuildConfig

_PAGE = re.compile(r"/([\w.-]+/[\w.-]+)(/tree/[^/]+)?/?", re.ASCII)
PUBLISHED = ("safetensors", "gptq", "bin")
"""What vLLM reads."""
TRANSFORMERS = ("safetensors", "bin")
"""What transformers reads, and with it the tools of TensorRT-LLM."""


class ModelSource(NamedTuple):
    """What to get."""

    key: str  # of the config, where `model` is
    model: str  # id on the hub, URL of a tar, or path
    revision: str | None
    weights: tuple[str, ...]  # formats; the first one that the model has is taken


def model_of(config: BuildConfig | CogTRTLLMConfig) -> ModelSource | None:
    """The model in `config`; None for a mock without one."""
    if isinstance(config, CogTRTLLMConfig):
        first_bin = config.weight_format == "bin"
        weights = tuple(reversed(TRANSFORMERS)) if first_bin else TRANSFORMERS
        if config.model_tar_url is not None:
            return ModelSource("model_tar_url", config.model_tar_url, None, weights)
        return ModelSource("model_id", config.model_id, config.revision, weights)
    if config.model is None:
        return None
    weights = TRANSFORMERS
    if isinstance(config, CTranslate2Config):
        weights = ("safetensors",)
    elif isinstance(config, VLLMConfig):
        weights = PUBLISHED
    elif isinstance(config, MockConfig):
        weights = ()  # its tokenizer is enough
    return ModelSource("model", config.model, config.revision, weights)


def is_url(model: str) -> bool:
    """Whether `model` is the address of a tar."""
    return model.startswith(("http://", "https://"))


def name_of_page(url: str) -> str | None:
    """The name of the model whose page on the hub has this address; None for other addresses."""
    try:
        parts, hub = urlsplit(url), urlsplit(constants.ENDPOINT)
    except ValueError:
        return None
    page = _PAGE.fullmatch(parts.path)
    if page is None or parts.netloc not in ("huggingface.co", hub.netloc) or parts.path.endswith(ARCHIVES):
        return None
    return page[1]


def local_folder(model: str, beside: Path | None) -> Path | None:
    """The folder `model`, with its links resolved; None if it is the name of a model on the hub.

    What begins with /, ./ or ../ is a path. Anything else is one if there is such a folder. A path starts at
    `beside`, the folder of the config; without that, for a config from a URL, it must be absolute. Raises
    ModelFolderUnusable for a path that does not lead to a folder, ModelNotFound for a name that the hub does
    not allow.
    """
    is_path = model.startswith(("/", "./", "../")) or model in (".", "..")
    if beside is None and is_path and not model.startswith("/"):
        reason = "it must be absolute: this config is not in a folder where a relative path could start"
        raise ModelFolderUnusable(path=model, reason=reason)
    path = Path(model) if beside is None else beside / model
    problem = "it does not exist"
    try:
        found = Path(os.path.realpath(path, strict=True)) if is_path or beside is not None else None
    except (OSError, ValueError) as error:
        found = None
        if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ENOTDIR):
            problem = str(error.strerror)
    if found is not None and found.is_dir():
        return found
    if is_path:
        raise ModelFolderUnusable(path=model, reason="it is a file" if found else problem)
    try:
        validate_repo_id(model)
    except HFValidationError:
        reason = "that is neither the name of a model on the hub (owner/name), nor a folder"
        raise ModelNotFound(model=public_address(model), reason=reason) from None
    return None
