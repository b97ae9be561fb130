"""Small engine archives for tests."""

from __future__ import annotations

import io
import tarfile
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from shared.artifact import EngineFacts, FileEntry, Manifest, PackedFile, extract_archive, write_archive
from shared.artifact.write import header

CONFIG = b'{"engine": "mock"}'
FACTS = EngineFacts(engine="mock", model="tiny", cog_triton_version="0.1.0")
CONTENTS = {
    "config.json": CONFIG,
    "engine/model.bin": bytes(range(256)) * 5,
    "tokenizer/tokenizer.json": b"{}",
}
END = bytes(1024)


def packed(contents: dict[str, bytes]) -> list[PackedFile]:
    return [PackedFile(name, data) for name, data in contents.items()]


def made(contents: dict[str, bytes] = CONTENTS) -> bytes:
    """An engine.tar of `contents`."""
    with TemporaryDirectory() as directory:
        output = Path(directory) / "engine.tar"
        write_archive(output, FACTS, packed(contents))
        return output.read_bytes()


def member(name: str, data: bytes) -> bytes:
    """One file as it is in an archive."""
    return header(name, len(data)) + data + bytes(-len(data) % 512)


def listing(contents: dict[str, bytes]) -> Manifest:
    """The manifest that tells the truth about `contents`."""
    entries = (FileEntry(name=n, size=len(d), sha256=sha256(d).hexdigest()) for n, d in contents.items())
    digest = sha256(contents.get("config.json", CONFIG)).hexdigest()
    return Manifest(**FACTS.model_dump(), config_digest=digest, files=tuple(entries))


def forged(manifest: bytes, *members: bytes) -> bytes:
    """An archive that no honest writer makes."""
    return member("manifest.json", manifest) + b"".join(members) + END


def old(*entries: tarfile.TarInfo) -> bytes:
    """An archive from before manifests: a config.json, then `entries` without contents."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        config = tarfile.TarInfo("./config.json")
        config.size = len(CONFIG)
        archive.addfile(config, io.BytesIO(CONFIG))
        for entry in entries:
            archive.addfile(entry)
    return output.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "") -> tarfile.TarInfo:
    """An entry of `kind` for `old`."""
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = linkname
    return info


class Pipe:
    """A stream that cannot seek, and gives few bytes at a time."""

    def __init__(self, data: bytes, step: int = 1000) -> None:
        self._data = io.BytesIO(data)
        self._step = step

    def read(self, size: int, /) -> bytes:
        return self._data.read(min(size, self._step))


def extract(data: bytes, destination: Path, max_bytes: int = 1 << 20) -> Manifest | None:
    return extract_archive(Pipe(data), destination, check=lambda _: None, max_bytes=max_bytes)


def files_below(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
