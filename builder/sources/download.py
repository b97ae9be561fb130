"""The step that brings the checkpoint here: from the Hugging Face hub, an http(s) tar, or a directory."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from builder.sources.files import check_files
from builder.sources.hub import HubModel
from builder.sources.model import PUBLISHED, TRANSFORMERS, is_url, local_folder, name_of_page
from builder.sources.tar import fetch_model_tar
from builder.sources.weights import check_weights, indexed
from builder.step import Build, Model
from builder.tokenizer.tekken import TEKKEN
from shared.chat_template import check_template
from shared.errors import (
    CheckpointInvalid,
    CogTritonError,
    ModelFilesMissing,
    ModelFolderUnusable,
    ModelNotFound,
    ModelTarUnusable,
    RevisionNotFound,
    TritonTokenizerError,
)
from shared.logs import get_logger
from shared.secrets import public_address

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from shared.progress import StepProgress

_log = get_logger()

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
)
TOKENIZER = "tokenizer.json"
# The files that hold a tokenizer; tokenizer.json is made from the others (builder/tokenizer).
_OLDER_FORMS = (("tokenizer.model",), ("vocab.json", "merges.txt"))
_TOKENIZER_FORMS = ((TOKENIZER,), (TEKKEN,), *_OLDER_FORMS)
# What else the tools of an engine read: older forms of the tokenizer, how the weights were quantized.
_TOOL_FILES = (
    *(name for form in _OLDER_FORMS for name in form),
    "added_tokens.json",
    "hf_quant_config.json",
    "quantize_config.json",
)
# The names that `transformers` uses: other files beside them hold the same weights again. Parts of a model
# are named model-00001-of-00002.safetensors or model.safetensors-00001-of-00002.safetensors, unless an index
# has other names for them: Qwen's FP8 models have layers-0.safetensors and so on.
WEIGHT_FILES = {
    "safetensors": ("model.safetensors", "model.safetensors.index.json", "model[-._]*.safetensors"),
    "bin": ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin"),
    # Of AutoGPTQ: gptq_model-4bit-128g.safetensors
    "gptq": ("gptq_model-*.safetensors", "gptq_model-*.safetensors.index.json"),
}


def tokenizer_form(files: Collection[str]) -> tuple[str, ...] | None:
    """The files from which the tokenizer of a model with `files` is taken; None if it has none."""
    return next((form for form in _TOKENIZER_FORMS if set(form) <= set(files)), None)


def weights_form(files: Collection[str], forms: Sequence[str]) -> str | None:
    """The first of `forms`, keys of `WEIGHT_FILES`, in which a model with `files` has its weights."""
    for form in forms:
        whole, index, *_ = WEIGHT_FILES[form]
        if any(fnmatch(file, whole) or fnmatch(file, index) for file in files):
            return form
    return None


def weights_patterns(files: Collection[str], forms: Sequence[str]) -> list[str]:
    """Patterns of the weights of a model with `files`, in the first of `forms` that it has: of an index alone
    where that is followed, since it lists the others. Empty if it has none of `forms`.
    """
    form = weights_form(files, forms)
    if form is None:
        return []
    whole, index, *parts = WEIGHT_FILES[form]
    # An index decides, but transformers prefers a whole file.
    follows = whole not in files or {*forms} != {*TRANSFORMERS}
    return [index] if follows and any(fnmatch(file, index) for file in files) else [whole, *parts]


@dataclass(frozen=True, slots=True)
class Download:
    """Get `model` and set `Build.model`.

    It is the id of a hub model, the http(s) URL of a tar, or a path, which starts at `beside`. Of `weights`,
    keys of `WEIGHT_FILES`, the first format that the model has is taken; without any, the engine only needs
    the tokenizer.
    """

    model: str
    revision: str | None = None
    weights: tuple[str, ...] = ("safetensors",)
    beside: Path | None = None
    more: tuple[str, ...] = ()
    """Patterns of further files to take, if the model has them."""
    needs_tokenizer: bool = True

    name: ClassVar[str] = "download"

    def run(self, build: Build, progress: StepProgress) -> None:
        """Raises the errors of a download (E3100 to E3108), and CheckpointInvalid."""
        if local := self.look():
            _log.info("the model is a folder", model=self.model, folder=str(local.path))
            build.model = local
        elif is_url(self.model):
            build.model = self._of_tar(build, progress)
        else:
            hub = HubModel(self.model, self.revision, build.hf_token)
            path = hub.fetch(self.wanted, progress, build.accept)
            build.model = self._directory(path, self.model, path.name)  # a snapshot is named after its commit

    def look(self) -> Model | None:
        """The model if it is a folder here.

        Raises what can be known without the network: ModelNotFound, RevisionNotFound, ModelFilesMissing,
        ModelFolderUnusable, CheckpointInvalid.
        """
        if is_url(self.model) and (name := name_of_page(self.model)):
            reason = (
                f"that is the page of {name} on the hub, not a tar; write `model: {name}`, or in the older"
                f" form `model_id: {name}` without `model_tar_url`"
            )
            raise ModelNotFound(model=self._shown, reason=reason)
        path = None if is_url(self.model) else local_folder(self.model, self.beside)
        if path is None:
            return None
        if self.revision is not None:
            raise RevisionNotFound(model=self._shown, revision=self.revision)
        return self._directory(path, path.name)

    def wanted(self, files: Collection[str]) -> list[str]:
        """Patterns of the files to take, of a model that has these; what an index among them lists is taken,
        too. Raises ModelFilesMissing when it lacks some.
        """
        form = tokenizer_form(files)
        if self.needs_tokenizer and form is None:
            others = " or ".join(" and ".join(names) for names in _TOKENIZER_FORMS[1:])
            missing = f"tokenizer.json, nor what one could be made from ({others})"
            raise ModelFilesMissing(model=self._shown, missing=missing)
        wanted = [*TOKENIZER_FILES, *(form or ()), *_TOOL_FILES, *self.more]
        if not self.weights:
            return wanted
        if "config.json" not in files:
            own = " (params.json, of Mistral's own form, is not read)" if "params.json" in files else ""
            raise ModelFilesMissing(model=self._shown, missing=f"config.json{own}")
        if weights := weights_patterns(files, self.weights):
            return [*wanted, *weights]
        names = " or ".join(WEIGHT_FILES[form][0] for form in self.weights)
        raise ModelFilesMissing(
            model=self._shown, missing=f"weights in {' or '.join(self.weights)} ({names})"
        )

    def _of_tar(self, build: Build, progress: StepProgress) -> Model:
        place, disk = build.model_dir, build.work_dir.parent  # the work folder goes with the build
        if build.tars is not None:
            disk = build.tars
            place = build.tars / f"model-{sha256(self.model.encode()).hexdigest()[:32]}"
        if not place.is_dir():
            fetch_model_tar(self.model, place, disk, progress)
        try:
            return self._directory(place, PurePosixPath(urlsplit(self.model).path).name)
        except CogTritonError as problem:
            shutil.rmtree(place, ignore_errors=True)  # another start may find a better one at the URL
            if isinstance(problem, ModelFolderUnusable):  # of a folder that is ours
                raise ModelTarUnusable(model=self._shown, reason=problem.details["reason"]) from None
            raise

    @property
    def _shown(self) -> str:
        return public_address(self.model)

    def _directory(self, path: Path, name: str, revision: str | None = None) -> Model:
        try:
            files = sorted(file.name for file in path.iterdir())
        except OSError as error:
            raise ModelFolderUnusable(path=str(path), reason=error.strerror) from None
        taken = _matching(files, self.wanted(files))
        form = weights_form(files, self.weights)
        # Also what is not taken, in this form: the hub's library reads headers where it finds them.
        check_files(path, {*taken, *_matching(files, WEIGHT_FILES[form] if form else ())})
        parts = indexed(path, taken, files)
        check_files(path, parts)
        if self.needs_tokenizer:
            try:
                check_template(path)  # a runner of the engine would refuse it, hours later
            except TritonTokenizerError as problem:
                raise CheckpointInvalid(reason=problem.details["reason"]) from None
        if self.weights == PUBLISHED:  # an engine that converts them reads them all
            check_weights(path, sorted({*taken, *parts}))
        return Model(name, revision, path)


def _matching(files: Iterable[str], patterns: Collection[str]) -> list[str]:
    return [file for file in files if any(fnmatch(file, pattern) for pattern in patterns)]
