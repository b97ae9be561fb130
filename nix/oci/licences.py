"""Licences as SPDX expressions, from the metadata of wheels and Debian's copyright files."""

from __future__ import annotations

import re

UNKNOWN = "NOASSERTION"
# Identifiers that tools know; others become LicenseRef-NAME.
_KNOWN = {
    *("0BSD", "AFL-2.1", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python"),
    *(
        "GPL-1.0-or-later",
        "GPL-2.0-only",
        "GPL-2.0-or-later",
        "GPL-3.0-only",
        "GPL-3.0-or-later",
        "HPND",
        "ISC",
    ),
    *("LGPL-2.0-only", "LGPL-2.0-or-later", "LGPL-2.1-only", "LGPL-2.1-or-later", "LGPL-3.0-only"),
    *(
        "LGPL-3.0-or-later",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",
        "NCSA",
        "PSF-2.0",
        "Python-2.0",
        "Unicode-3.0",
    ),
    *("Unlicense", "X11", "Zlib"),
}
# How people write them, ignoring case, spaces, dashes, and the words "license", "the" and "version".
_ALIASES = {
    "apache": "Apache-2.0",
    "apache2": "Apache-2.0",
    "apache2.0": "Apache-2.0",
    "apachesoftware": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd2clause": "BSD-2-Clause",
    "bsd3clause": "BSD-3-Clause",
    "3clausebsd": "BSD-3-Clause",
    "expat": "MIT",
    "isc(iscl)": "ISC",
    "mozillapublic2.0(mpl2.0)": "MPL-2.0",
    "psf": "PSF-2.0",
    "pythonsoftwarefoundation": "PSF-2.0",
    "unlicense(unlicense)": "Unlicense",
    **{name.lower().replace("-", ""): name for name in _KNOWN},
    **{
        f"{kind}{number}{plus}": f"{kind.upper()}-{number if '.' in number else number + '.0'}-{end}"
        for kind in ("gpl", "lgpl")
        for number in ("1", "2", "2.0", "2.1", "3", "3.0")
        for plus, end in (("", "only"), ("+", "or-later"))
    },
}
_WORDS = re.compile(r"\s+|[()]|[^\s()]+")
_FIELD = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)
_ANY = re.compile(r",?\s+(?:and/or|or)\s+")
_ALL = re.compile(r",\s*|\s+and\s+")
_LONGEST = 12  # words of a line that lists licences
_COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z]+(?:-[\d.]+)?)")


def identifier(name: str) -> str:
    """One licence, by the name that somebody used."""
    key = re.sub(r"\b(?:licen[cs]e|the|version|v)\b|v(?=\d)|[\s-]", "", name.lower())
    known = _ALIASES.get(key, name)
    if known in _KNOWN or known.startswith("LicenseRef-"):
        return known
    return "LicenseRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")


def expression(text: str) -> str:
    """An SPDX expression whose identifiers are all known, or LicenseRef-NAME."""
    words = []
    previous = ""
    for word in _WORDS.findall(text):
        if not word.strip() or word in {"(", ")"} or word.upper() in {"AND", "OR", "WITH"}:
            words.append(word.upper() if word.strip() else " ")
        elif previous == "WITH":
            words.append(word)  # an exception, which has a name of its own
        else:
            words.append(identifier(word))
        previous = word.upper() if word.strip() else previous
    return "".join(words).strip()


def of_wheel(declared: str, field: str, classifiers: list[str]) -> str:
    """From `License-Expression`, `License` and the classifiers of a wheel's metadata."""
    if declared:
        return expression(declared)
    own = [
        line.rpartition(" :: ")[2]
        for line in classifiers
        if line.startswith("License :: ") and line.count(" :: ") > 1
    ]
    if field and len(field) <= 60 and "\n" not in field:
        compound = re.search(r"\b(?:AND|OR)\b", field)
        return expression(field) if compound else identifier(field)
    return " AND ".join(sorted({identifier(name) for name in own})) or UNKNOWN


def of_debian(package: str, copyright_file: str) -> str:
    """From the copyright file of a Debian package, of either form (DEP-5, or free text)."""
    own = f"LicenseRef-debian-{re.sub('[^A-Za-z0-9.]+', '-', package)}"
    names: set[str] = set()
    for line in _FIELD.findall(copyright_file):
        if len(line.split()) > _LONGEST:  # the text itself
            names.add(own)
            continue
        choices = [_ALL.split(choice) for choice in _ANY.split(line.strip())]
        if len(choices) == 1:
            names |= {identifier(part) for part in choices[0] if part}
        else:
            parts = [" AND ".join(identifier(part) for part in choice if part) for choice in choices]
            names.add(f"({' OR '.join(parts)})")
    if not names:
        names = {identifier(name.rstrip(".")) for name in _COMMON.findall(copyright_file)}
        names |= {own} if copyright_file else set()
    return " AND ".join(sorted(names)) or UNKNOWN
