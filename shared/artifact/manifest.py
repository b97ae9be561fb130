"""manifest.json: what an engine is, and the size and digest of each of its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, ValidationError

from shared.errors import EngineArchiveCorrupt, EngineArchiveMalformed, EngineArchiveVersion
from shared.validation import wanted

from .tar import MAX_ENTRIES

MANIFEST = "manifest.json"
CONFIG = "config.json"
WHY_NO_MANIFEST = (
    f"no {MANIFEST} was found, with which an archive must begin: it was copied only in part or packed anew,"
    " is from an old builder, or is not an engine"
)
"""Why there may be none, for people: "it" is what was looked at."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def name_problem(name: str) -> str | None:
    """What keeps `name` from being a file of an engine, as the end of a sentence; None for a good one.

    A good name is relative, in the plain form of POSIX, and fits every file system.
    """
    parts = name.split("/")
    if name.startswith("/"):
        return "is an absolute path"
    if ".." in parts:
        return "leads out of the archive"
    if "" in parts or "." in parts:
        return "is not a plain relative path"
    if not name.isprintable():
        return "has characters that cannot be shown"
    if len(name.encode()) > 1024 or max(len(part.encode()) for part in parts) > 255:
        return "has a name that is too long"
    return None


def _plain_name(name: str) -> str:
    if problem := name_problem(name):
        raise ValueError(f"{name!r} {problem}")
    return name


class _Part(BaseModel):
    # A later writer of this format version may add keys; this reader does not need them.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Versioned(_Part):
    format_version: int


class FileEntry(_Part):
    """One file of the archive."""

    name: Annotated[str, AfterValidator(_plain_name)]
    size: Annotated[int, Field(ge=0, lt=2**63)]
    """Bytes."""
    sha256: Sha256


class EngineFacts(_Part):
    """What the builder knows of an engine before its files are packed."""

    format_version: Literal[1] = 1
    engine: str
    """The kind: "ctranslate2", "mock", ..."""
    engine_version: str | None = None
    tensorrt_llm_version: str | None = None
    tensorrt_version: str | None = None
    cuda_version: str | None = None
    """Of the CUDA runtime that built it."""
    driver_version: str | None = None
    gpu_name: str | None = None
    """Of the GPU that built it."""
    sm: int | None = None
    """Compute capability of the GPU that built it, 86 for 8.6; None where the engine fits every machine."""
    ranks: Annotated[int, Field(ge=1)] = 1
    """Processes that serve it together."""
    gpu_bytes: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """What its weights take of each GPU; None: not known."""
    model: str
    """The model's id on the hub, or the last part of its path."""
    revision: str | None = None
    """The resolved commit; None for a model from a path."""
    cog_triton_version: str


class Manifest(EngineFacts):
    """The facts, and every file of the archive but manifest.json itself, in their order there."""

    config_digest: Sha256
    """Of config.json in the archive: tells two builds apart without looking at their files."""
    files: Annotated[tuple[FileEntry, ...], Field(max_length=MAX_ENTRIES), FailFast()]

    @property
    def total_size(self) -> int:
        """Bytes that the files take when unpacked."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """The text of manifest.json. Its length does not depend on the digests."""
        return self.model_dump_json(indent=2).encode() + b"\n"

    @classmethod
    def from_bytes(cls, text: bytes) -> Manifest:
        """Read manifest.json.

        Raises EngineArchiveVersion for another format version, EngineArchiveMalformed for what is not a
        manifest or lists a file twice, EngineArchiveCorrupt for one that contradicts itself.
        """
        try:
            version = _Versioned.model_validate_json(text).format_version
            if version != (supported := cls.model_fields["format_version"].default):
                raise EngineArchiveVersion(version=version, supported=supported)
            manifest = cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in (MANIFEST, *first["loc"]))
            raise EngineArchiveMalformed(reason=f"{where} {wanted(first)}") from None
        if any(file.name == CONFIG and file.sha256 != manifest.config_digest for file in manifest.files):
            raise EngineArchiveCorrupt(file=CONFIG, reason="its config_digest is that of another config")
        for name, count in Counter(file.name for file in manifest.files).items():
            if count > 1:
                raise EngineArchiveMalformed(reason=f"{MANIFEST} lists {name!r} more than once")
        return manifest


Check = Callable[[Manifest | None], None]
"""Raises a coded error to refuse an engine; gets None for one from before manifests."""
