"""The step that brings the checkpoint here: from the Hugging Face hub, an http(s) tar, or a directory.

The files of a hub model live in the hub library's own cache (HF_HOME, HF_HUB_CACHE); HF_ENDPOINT,
HF_HUB_OFFLINE and HF_TOKEN mean what they mean to it. A build of a model that is there downloads nothing.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm

from builder.model_tar import fetch_model_tar
from builder.step import Build, Model
from shared.errors import (
    CogTritonError,
    DownloadFailed,
    ModelFilesMissing,
    ModelGated,
    ModelNotFound,
    RevisionNotFound,
)
from shared.secrets import public_address

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from shared.progress import StepProgress

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "config.json",
)
# The names that `transformers` gives: other safetensors files beside them hold the same weights once more.
_WEIGHT_FILES = ("model.safetensors", "model-*.safetensors", "model.safetensors.index.json")
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Download:
    """Get `model` and set `Build.model`.

    It is the id of a hub model, the http(s) URL of a tar, or a directory that starts with /, ./ or ../.
    """

    model: str
    revision: str | None = None
    weights: bool = True  # False: the tokenizer is all that the engine needs

    name: ClassVar[str] = "download"

    def run(self, build: Build, progress: StepProgress) -> None:
        """Raises E3100 to E3104."""
        if self.model.startswith(("/", "./", "../")):
            build.model = self._local()
        elif self.model.startswith(("http://", "https://")):
            fetch_model_tar(self.model, build.work_dir / "model", progress)
            name = PurePosixPath(urlsplit(self.model).path).name
            build.model = self._directory(build.work_dir / "model", name)
        else:
            build.model = self._from_hub(build.hf_token, progress)

    @property
    def _shown(self) -> str:
        return public_address(self.model)

    def _local(self) -> Model:
        path = Path(self.model).resolve()
        if not path.is_dir():
            raise ModelNotFound(model=self._shown, reason="there is no such directory")
        if self.revision is not None:
            raise RevisionNotFound(model=self._shown, revision=self.revision)
        return self._directory(path, path.name)

    def _directory(self, path: Path, name: str) -> Model:
        self._check({file.name for file in path.iterdir()})
        return Model(name, None, path)

    def _from_hub(self, token: str | None, progress: StepProgress) -> Model:
        api = HfApi(token=token)
        try:
            if constants.is_offline_mode():
                path = Path(self._snapshot(api, local_files_only=True))
                self._check({file.name for file in path.iterdir()})
            else:
                info = api.model_info(self.model, revision=self.revision)
                self._check({file.rfilename for file in info.siblings or ()})
                path = self._download(api, progress)
        except CogTritonError:
            raise
        except Exception as error:
            raise self._translated(error) from None
        return Model(self.model, path.name, path)  # the library names a snapshot by its commit

    def _download(self, api: HfApi, progress: StepProgress) -> Path:
        """Run the hub library in a thread of its own, so that a cancelled build stops at the next chunk."""
        cancelled = threading.Event()

        def show(done: int, total: int) -> None:
            if cancelled.is_set():
                raise _CancelledError
            progress(done, total)

        with ThreadPoolExecutor(1) as executor:
            future = executor.submit(self._snapshot, api, tqdm_class=_byte_counter(show))
            try:
                while True:
                    try:
                        return Path(future.result(_POLL_SECONDS))
                    except TimeoutError:
                        if future.done():
                            raise
            finally:
                cancelled.set()

    def _snapshot(self, api: HfApi, **options: Any) -> str:
        patterns = [*TOKENIZER_FILES, *(_WEIGHT_FILES if self.weights else ())]
        # A pattern's * also matches /: folders hold other forms of the model (original/, onnx/).
        snapshot: str = api.snapshot_download(
            self.model, revision=self.revision, allow_patterns=patterns, ignore_patterns="*/*", **options
        )
        return snapshot

    def _check(self, files: Collection[str]) -> None:
        """Refuse a model that lacks files before anything large is moved."""
        if "tokenizer.json" not in files:
            raise ModelFilesMissing(model=self._shown, missing="tokenizer.json")
        if not self.weights:
            return
        if "config.json" not in files:
            raise ModelFilesMissing(model=self._shown, missing="config.json")
        if not {"model.safetensors", "model.safetensors.index.json"} & set(files):
            raise ModelFilesMissing(model=self._shown, missing="weights in safetensors (model.safetensors)")

    def _translated(self, error: Exception) -> CogTritonError:
        """Say in our words what the hub library raised; its own texts hold addresses and paths."""
        match error:
            case HFValidationError():
                reason = "that is neither owner/name on the hub, nor a path that starts with / or ./"
                return ModelNotFound(model=self._shown, reason=reason + self._directory_hint())
            case GatedRepoError():
                return ModelGated(model=self._shown)
            case RepositoryNotFoundError():
                reason = "the hub does not know it, or it is private"
                return ModelNotFound(model=self._shown, reason=reason + self._directory_hint())
            case RevisionNotFoundError():
                return RevisionNotFound(model=self._shown, revision=self.revision or "main")
            case LocalEntryNotFoundError() if constants.is_offline_mode():
                reason = "HF_HUB_OFFLINE is set, and it is not all in the cache"
            case LocalEntryNotFoundError() if isinstance(error.__cause__, Exception):
                return self._translated(error.__cause__)
            case HfHubHTTPError() if error.response.status_code == httpx2.codes.UNAUTHORIZED:
                return ModelNotFound(model=self._shown, reason="the hub does not accept this hf_token")
            case HfHubHTTPError():
                reason = f"the hub answered {error.response.status_code}"
            case httpx2.ConnectError():
                reason = "no connection to the hub"
            case httpx2.TimeoutException():
                reason = "the hub did not answer in time"
            case OSError(strerror=str(text)):
                reason = text
            case _:
                reason = f"the transfer broke ({type(error).__name__})"
        return DownloadFailed(model=self._shown, reason=reason)

    def _directory_hint(self) -> str:
        return "; a directory is written with ./ before it" if Path(self.model).is_dir() else ""


class _CancelledError(Exception):
    """Ends the transfers of a cancelled build."""


def _byte_counter(show: Callable[[int, int], None]) -> type[tqdm]:
    """A progress bar for the hub library that draws nothing and passes the bytes on."""

    class Counter(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # Beside the bytes written, the library counts files, and the bytes of the wire.
            self._shown = str(kwargs.get("desc")).startswith("Reconstructing")
            self._done = 0
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            self._done += int(n or 0)
            if self._shown:
                show(self._done, int(self.total or 0))

    return Counter
