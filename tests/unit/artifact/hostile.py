"""Archives that mean harm: what each is, its bytes, and the error that refuses it."""

from __future__ import annotations

import gzip
import re
import tarfile

from backports import zstd

from shared.errors import (
    CogTritonError,
    EngineArchiveCorrupt,
    EngineArchiveMalformed,
    EngineArchiveTooLarge,
    EngineArchiveUnsafe,
)
from tests.unit.artifact.archives import CONFIG, END, entry, forged, listing, made, member, old

MAX_BYTES = 1 << 20
"""The limit that the bombs among them go beyond."""


def tar_header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = entry(name, kind)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def pax(records: bytes) -> bytes:
    """An extended header with these records, for the entry behind it."""
    return tar_header("././@PaxHeader", len(records), tarfile.XHDTYPE) + records + bytes(-len(records) % 512)


def record(key: str, value: str | bytes) -> bytes:
    """A record of an extended header, preceded by its own length."""
    rest = f" {key}=".encode() + (value.encode() if isinstance(value, str) else value) + b"\n"
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length += 1
    return str(length).encode() + rest


def behind_config(*parts: bytes) -> bytes:
    """An archive of the time before manifests that begins like a good one."""
    return member("config.json", CONFIG) + b"".join(parts) + END


def listed(contents: dict[str, bytes], *members: bytes) -> bytes:
    """An archive with a manifest of `contents`, and these members."""
    return forged(listing(contents).to_bytes(), *members)


def named(name: bytes) -> bytes:
    """A file whose header holds just this name."""
    header = bytearray(tar_header("x", 0))
    header[: len(name)] = name
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def with_manifest(text: bytes) -> bytes:
    return forged(text, member("config.json", CONFIG))


def long_name(kind: bytes, name: bytes) -> bytes:
    """GNU tar's form of a long name, or of the long target of a link."""
    return tar_header("././@LongLink", len(name), kind) + name + bytes(-len(name) % 512)


_GOOD = {"config.json": CONFIG, "model.bin": b"weights"}
_TEXT = listing(_GOOD).to_bytes()
_SMALL = member("config.json", CONFIG)

_UNSAFE_ENTRIES = {
    "absolute path": [entry("/etc/passwd")],
    "path upwards": [entry("../evil")],
    "path upwards and back": [entry("a/../../evil")],
    "control character": [entry("a\x1b[2Jb")],
    "device": [entry("sda", tarfile.BLKTYPE)],
    "terminal": [entry("tty", tarfile.CHRTYPE)],
    "fifo": [entry("fifo", tarfile.FIFOTYPE)],
    "unknown kind": [entry("volume", b"V")],
    "file twice": [entry("a"), entry("a")],
    "config twice": [entry("config.json")],
    "file below a file": [entry("config.json/a")],
    "file on a directory": [entry("a/b"), entry("a")],
    "directory on a file": [entry("config.json", tarfile.DIRTYPE)],
    "link out": [entry("a", tarfile.SYMTYPE, "../../etc/passwd")],
    "absolute link": [entry("a", tarfile.SYMTYPE, "/etc/passwd")],
    "link to nothing": [entry("a", tarfile.SYMTYPE, "b")],
    "link to itself": [entry("a", tarfile.SYMTYPE, "a")],
    "link out over a link": [entry("d/e", tarfile.DIRTYPE), entry("l", tarfile.SYMTYPE, "d/e"), entry("a", tarfile.SYMTYPE, "l/../../..")],
    "file through a link": [entry("l", tarfile.SYMTYPE, "/tmp"), entry("l/evil")],
    "hard link out": [entry("a", tarfile.LNKTYPE, "/etc/passwd")],
    "hard link upwards": [entry("a", tarfile.LNKTYPE, "../evil")],
    "hard link to itself": [entry("a", tarfile.LNKTYPE, "a")],
    "hard link to a link": [entry("l", tarfile.SYMTYPE, "/etc/passwd"), entry("a", tarfile.LNKTYPE, "l")],
}  # fmt: skip

_UNSAFE = {
    "NUL in a name": behind_config(pax(record("path", "a\0b")), member("x", b"")),
    "newline in a name": behind_config(named(b"a\nb")),
    "text that runs backwards in a name": behind_config(pax(record("path", "a\u202egnp.exe")), member("x", b"")),
    "no text in a name": behind_config(named(b"a\xff\xfeb")),
    "no name": behind_config(named(b"\0")),
    "name of a point": behind_config(named(b"././.\0")),
    "empty part of a name": behind_config(named(b"a//b\0")),
    "point in a name": behind_config(named(b"a/./b\0")),
    "long part of a name": behind_config(pax(record("path", "n" * 256)), member("x", b"")),
    "long name": behind_config(pax(record("path", "/".join(["n" * 200] * 6))), member("x", b"")),
    "name of 900 kB": behind_config(pax(record("path", "n/" * 450_000)), member("x", b"")),
    "absolute path in an extended header": behind_config(pax(record("path", "/etc/evil")), member("x", b"")),
    "path upwards in an extended header": behind_config(pax(record("path", "../evil")), member("x", b"")),
    "absolute path in a long name": behind_config(long_name(b"L", b"/etc/evil"), member("x", b"")),
    "path upwards in the prefix of a name": behind_config(entry("../" + "d" * 150 + "/x").tobuf(tarfile.USTAR_FORMAT)),
    "the same file with a point before it": behind_config(member("./config.json", b"{}")),
    "link out in an extended header": behind_config(pax(record("linkpath", "/etc/passwd")), entry("a", tarfile.SYMTYPE, "config.json").tobuf()),
    "NUL in a link": behind_config(pax(record("linkpath", "a\0b")), entry("a", tarfile.SYMTYPE, "x").tobuf()),
    "link of 5000 characters": behind_config(pax(record("linkpath", "a" * 5000)), entry("a", tarfile.SYMTYPE, "x").tobuf()),
    "link to an empty name": old(entry("a", tarfile.SYMTYPE, "")),
    "hard link out in a long name": behind_config(long_name(b"K", b"../../etc/passwd"), entry("a", tarfile.LNKTYPE, "config.json").tobuf()),
    "links in a circle": old(entry("a", tarfile.SYMTYPE, "b"), entry("b", tarfile.SYMTYPE, "a")),
    "link for a directory, then a file in it": old(entry("d", tarfile.SYMTYPE, "."), entry("d/evil")),
    "link in place of the config": old(entry("l", tarfile.SYMTYPE, "../../secret"), entry("config.json", tarfile.SYMTYPE, "l")),
    "links over each other": old(*[entry(f"l{n}", tarfile.SYMTYPE, f"l{n - 1}" if n else "config.json") for n in range(50)]),
    "second volume": behind_config(entry("a", b"M").tobuf()),
    "list of a directory": behind_config(entry("a", b"D").tobuf()),
    "link below a manifest": listed({"config.json": CONFIG}, _SMALL, entry("a", tarfile.SYMTYPE, "config.json").tobuf()),
    "file twice below a manifest": listed({"config.json": CONFIG}, _SMALL, _SMALL),
    **{name: old(*entries) for name, entries in _UNSAFE_ENTRIES.items()},
}  # fmt: skip
_CORRUPT = {
    "wrong digest": listed(_GOOD, _SMALL, member("model.bin", b"WEIGHTS")),
    "longer than listed": listed(_GOOD, _SMALL, member("model.bin", b"weights and more")),
    "shorter than listed": listed(_GOOD, _SMALL, member("model.bin", b"w")),
    "not listed": listed({"config.json": CONFIG}, _SMALL, member("evil", b"")),
    "config of another digest": with_manifest(re.sub(rb'"config_digest": "\w+"', b'"config_digest": "' + b"0" * 64 + b'"', _TEXT)),
    "listed and missing": listed(_GOOD, _SMALL),
}  # fmt: skip
_TOO_LARGE = {
    "large by its manifest": with_manifest(_TEXT.replace(b'"size": 7', b'"size": 9999999999')),
    "large by a header": behind_config(tar_header("bomb", 1 << 40)),
    "large by an extended header": behind_config(pax(record("size", str(1 << 50))), member("bomb", b"")),
    "10^17 bytes by a header": behind_config(tar_header("bomb", 10**17)),
    "gzip bomb": gzip.compress(behind_config(member("bomb", bytes(4 << 20)))),
    "Zstandard bomb": zstd.compress(behind_config(member("bomb", bytes(4 << 20)))),
    "many small files": behind_config(*[member(f"f{n}", bytes(512 << 10)) for n in range(3)]),
    "bomb of headers": gzip.compress(pax(record("comment", "0" * 1_000_000)) * 200 + END),
}  # fmt: skip
_MALFORMED = {
    "sparse file of GNU": behind_config(tar_header("x", 0, tarfile.GNUTYPE_SPARSE)),
    "sparse file in an extended header": behind_config(pax(record("GNU.sparse.realsize", str(1 << 60))), member("x", b"")),
    "negative size": behind_config(tar_header("x", -512)),
    "negative size in an extended header": behind_config(pax(record("size", "-512")), member("x", b"")),
    "size that is no number": behind_config(pax(record("size", "1e3")), member("x", b"")),
    "size of 5000 digits": behind_config(pax(record("size", "9" * 5000)), member("x", b"")),
    "size beyond the end": behind_config(pax(record("size", "65536")), member("x", b"x")),
    "extended header of 1 GB": behind_config(tar_header("x", 1 << 30, tarfile.XHDTYPE)),
    "long name of 1 GB": behind_config(tar_header("x", 1 << 30, tarfile.GNUTYPE_LONGNAME)),
    "extended header whose lengths overlap": behind_config(pax(b"9999 path=x\n"), member("x", b"")),
    "extended header without an entry": behind_config(pax(record("path", "x"))),
    "manifest of 1 GB": tar_header("manifest.json", 1 << 30),
    "manifest that lists a path upwards": with_manifest(_TEXT.replace(b"model.bin", b"../mo.bin")),
    "manifest that lists a negative size": with_manifest(_TEXT.replace(b'"size": 7', b'"size": -7')),
    "manifest behind a file": behind_config(member("manifest.json", _TEXT)),
    "link behind a file in place of a manifest": old(entry("manifest.json", tarfile.SYMTYPE, "config.json")),
    "hard link behind a file in place of a manifest": old(entry("manifest.json", tarfile.LNKTYPE, "config.json")),
    "directory in place of a manifest": old(entry("manifest.json/a")),
    "link to a directory in place of the config": old(entry("d/a"), entry("config.json", tarfile.SYMTYPE, "d"))[1024:],
    "no config": old(entry("a"))[1024:],
    "damaged header": behind_config(b"x" * 512),
    "gap": member("config.json", CONFIG) + bytes(512) + member("x", b"") + END,
    "archive behind an archive": made() + made(),
    "something behind the end": made() + b"#!/bin/sh",
    "gzip cut short": gzip.compress(made())[:-9],
    "gzip with a wrong checksum": gzip.compress(made())[:-8] + bytes(8),
    "something behind gzip": gzip.compress(made()) + b"#!/bin/sh",
    "Zstandard cut short": zstd.compress(made())[:-1],
    "something behind Zstandard": zstd.compress(made()) + b"#!/bin/sh",
    # The header of a frame that asks for a window of 2 GiB (RFC 8878, 3.1.1.1).
    "Zstandard with a large window": b"\x28\xb5\x2f\xfd\x00\xa8" + b"\x01\x00\x00",
    "gzip in gzip": gzip.compress(gzip.compress(made())),
    "no archive": b"<!doctype html>".ljust(4096),
    "empty": b"",
    **{f"cut after {n} blocks": made()[: 512 * n] for n in range(len(made()) // 512)},
}  # fmt: skip

HOSTILE: dict[str, tuple[bytes, type[CogTritonError]]] = {
    name: (data, error)
    for kinds, error in (
        (_UNSAFE, EngineArchiveUnsafe),
        (_CORRUPT, EngineArchiveCorrupt),
        (_TOO_LARGE, EngineArchiveTooLarge),
        (_MALFORMED, EngineArchiveMalformed),
    )
    for name, data in kinds.items()
}
