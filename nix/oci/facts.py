"""What packages say about themselves, for the SBOM: their suppliers, licences and source packages."""

from __future__ import annotations

import email
import io
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from . import debian, licences

_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_PARTIES = ("Author", "Author-email", "Maintainer", "Maintainer-email")
_ADDRESS = re.compile(r"\s*<[^>]*>")
_ORGANISATION = re.compile(
    r"\b(?:Authority|authors?|Collective|Committee|community|company|contributors|Corp|Corporation|developers|Face"
    r"|Foundation|GmbH|Group|Inc|Labs?|LLC|Ltd|Maintainers|Packagers|Organi[sz]ation|Project|Team|University|NVIDIA|Google|Microsoft)\b",
    re.IGNORECASE,
)


def described(package: dict[str, Any]) -> dict[str, Any]:
    """A package of a layer's spec with `supplier` and `licence` (as in SPDX 2.3), and without its `path`.

    A Debian package also gets `architecture` and `source` (name and version of its source package).
    """
    own = {key: value for key, value in package.items() if key not in {"path", "address", "repository"}}
    path = Path(package["path"])
    match package["type"]:
        case "debian":
            return own | _of_debian(path, package["name"])
        case "wheel":
            return own | _of_wheel(path, package["name"])
        case _:
            address = urlsplit(package.get("address") or package["repository"])
            owner = "/".join([address.netloc, *address.path.split("/")[1:2]])
            return own | {"supplier": f"Organization: {owner}", "licence": licences.UNKNOWN}


def _of_debian(path: Path, name: str) -> dict[str, Any]:
    control, text = "", ""
    for member, data in debian.members(path):
        if member.startswith("control.tar"):
            control = _read(data, "./control")
        elif member.startswith("data.tar"):
            text = _read(data, f"./usr/share/doc/{name}/copyright")
    fields = email.message_from_string(control)
    source, _, version = fields.get("Source", fields["Package"]).partition(" ")
    return {
        "supplier": "Organization: Debian",
        "originator": _party(fields["Maintainer"]),
        "licence": licences.of_debian(name, text),
        "architecture": fields["Architecture"],
        "source": {"name": source, "version": version.strip("()") or fields["Version"]},
    }


def _read(archive: bytes, name: str) -> str:
    """A text file in a tar; empty if it is missing, or a link to another package's."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        if name not in files.getnames() or not files.getmember(name).isreg():
            return ""
        file = files.extractfile(name)
        assert file is not None
        return file.read().decode(errors="replace")


def _of_wheel(path: Path, name: str) -> dict[str, Any]:
    fields = email.message_from_string(_metadata(path).decode(errors="replace"))
    parties = [fields[field] for field in _PARTIES if fields[field]]
    declared, text = fields.get("License-Expression", ""), fields.get("License", "")
    return {
        "supplier": _party(next(iter(parties), f"The {name} project")),
        "licence": licences.of_wheel(declared, text, fields.get_all("Classifier", [])),
    }


def _metadata(path: Path) -> bytes:
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as sources:
            name = min((name for name in sources.getnames() if name.endswith("/PKG-INFO")), key=len)
            file = sources.extractfile(name)
            assert file is not None
            return file.read()
    with zipfile.ZipFile(path) as wheel:
        return wheel.read(next(name for name in wheel.namelist() if _METADATA.fullmatch(name)))


def _party(text: str) -> str:
    """A party in the form of SPDX, without addresses."""
    name = _ADDRESS.sub("", " ".join(text.split())) or text.strip(" <>").partition("@")[0]
    name = re.sub(r"[()\"]", "", name).strip()
    kind = "Person" if " " in name and not _ORGANISATION.search(name) else "Organization"
    return f"{kind}: {name}"
