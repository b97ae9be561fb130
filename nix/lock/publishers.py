"""nix/locks/publishers.json: what publishers keep on indexes and sites of their own.

An index names the sha256 of a file in the fragment of its link (the simple repository API, PEP 503), so an
unknown hash is read from its page; gigabytes of wheels are not downloaded for it.
"""

from __future__ import annotations

import hashlib
import os
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote, urlsplit

import httpx2
from packaging.utils import canonicalize_name

from nix.lock.files import Document, LockProblem, Row, Shape
from shared.proxies import proxy_problem
from shared.secrets import public_address
from shared.tls import settings_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

_TIMEOUT_SECONDS = 30
_NVIDIAS_INDEX = "https://pypi.nvidia.com"
_SETTING = "NVIDIA_INDEX_URL"
SHAPE: Shape = {
    "artifacts": {
        **dict.fromkeys(("name", "version", "file"), str),
        **dict.fromkeys(("environment", "sha256", "index", "address"), str | None),
        "size": int | None,
    }
}
_SHA256 = re.compile("[0-9a-f]{64}")
_KEPT = "Its entry in nix/locks/publishers.json stays as it was."


def check(document: Document) -> Document:
    """The same document with every hash known, and those known before compared with the publishers' pages.

    One that was entered by hand, as its page has none, stays. Raises LockProblem when a publisher cannot be
    reached, no longer has a file, does not state a hash that is unknown, or states a different one from the
    lock's.
    """
    with _client() as client:
        pages: dict[str, dict[str, str]] = {}
        rows = []
        for row in document["artifacts"]:
            if row["index"] is None:
                rows.append(row if row["sha256"] else _hashed(client, row))
                continue
            page = f"{_asked(row['index'])}/{canonicalize_name(row['name'])}/"
            if page not in pages:
                pages[page] = hashes(_get(client, page))
            rows.append(_named(row, page, pages[page]))
    return {**document, "artifacts": rows}


def _client() -> httpx2.Client:
    if problem := settings_problem() or proxy_problem():
        raise LockProblem(f"{problem}.")
    return httpx2.Client(follow_redirects=True, timeout=_TIMEOUT_SECONDS)


def trusted(before: Document, after: Document) -> list[str]:
    """Where the hashes that were unknown `before` come from, a sentence for each."""
    known = {row["file"]: row["sha256"] for row in before["artifacts"]}
    return [
        f"{row['file']}: sha256 {row['sha256']}, "
        + (
            f"as {public_address(_asked(row['index']))} states it"
            if row["index"]
            else f"computed from what {address(row)} sent"
        )
        for row in after["artifacts"]
        if row["sha256"] and known.get(row["file"]) is None
    ]


def fill(document: Document) -> tuple[Document, list[str]]:
    """The same document with the unknown hashes that can be found now, and why the others cannot."""
    rows, problems = [], []
    for row in document["artifacts"]:
        known = row
        if row["sha256"] is None:
            try:
                known = check({"artifacts": [row]})["artifacts"][0]
            except LockProblem as problem:
                problems.append(str(problem))
        rows.append(known)
    return {**document, "artifacts": rows}, problems


def wheel_rows(document: Document, environment: str) -> list[Row]:
    """The publishers' wheels of one environment, as rows of nix/locks/wheels."""
    columns = ("name", "version", "file", "sha256", "size", "index")
    return [
        {column: row[column] for column in columns}
        for row in document["artifacts"]
        if row["environment"] == environment
    ]


def _asked(index: str) -> str:
    """Where an index is asked: NVIDIA's at the mirror in NVIDIA_INDEX_URL, if set."""
    mirror = os.environ.get(_SETTING, "").rstrip("/")
    return mirror if mirror and index == _NVIDIAS_INDEX else index


def address(row: Row) -> str:
    """The address of a row's file that is not on an index. Raises LockProblem for one that has none."""
    if row["address"] is None:
        raise LockProblem(f"{row['file']} has neither an index nor an address. {_KEPT}")
    return str(row["address"]).replace("{file}", quote(row["file"]))


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def hashes(page: str) -> dict[str, str]:
    """The sha256 by file name that a page of a simple index states; empty text where a link has none."""
    links = _Links()
    links.feed(page)
    return {
        unquote(urlsplit(link).path.rpartition("/")[2]): _stated(urlsplit(link).fragment)
        for link in links.found
    }


def _stated(fragment: str) -> str:
    found = parse_qs(fragment).get("sha256", [""])[0]
    return found if _SHA256.fullmatch(found) else ""


def _named(row: Row, page: str, stated: dict[str, str]) -> Row:
    file, page = row["file"], public_address(page)
    if file not in stated:
        raise LockProblem(f"{page} no longer lists {file}; pin another version. {_KEPT}")
    if not stated[file]:
        if row["sha256"]:
            return row
        raise LockProblem(f"{page} has no sha256 for {file}; enter it by hand from a download. {_KEPT}")
    if row["sha256"] not in {None, stated[file]}:
        raise LockProblem(
            f"The sha256 that {page} has for {file} differs from the lock's: the file was replaced. "
            f"Find out why before you trust it. {_KEPT}"
        )
    return {**row, "sha256": stated[file]}


def _hashed(client: httpx2.Client, row: Row) -> Row:
    """An archive that no index lists is small enough to be downloaded for its hash."""
    place = address(row)
    digest, size = hashlib.sha256(), 0
    try:
        with client.stream("GET", place) as answer:
            _refuse(answer, place)
            for part in answer.iter_bytes():
                digest.update(part)
                size += len(part)
    except httpx2.HTTPError as error:
        raise _unreachable(place) from error
    return {**row, "sha256": digest.hexdigest(), "size": size}


def _get(client: httpx2.Client, place: str) -> str:
    try:
        answer = client.get(place, headers={"Accept": "text/html"})
    except httpx2.HTTPError as error:
        raise _unreachable(place) from error
    _refuse(answer, place)
    return answer.text


def _refuse(answer: httpx2.Response, place: str) -> None:
    if answer.status_code != httpx2.codes.OK:
        raise LockProblem(f"{public_address(place)} answers {answer.status_code}; it may have moved. {_KEPT}")


def _unreachable(place: str) -> LockProblem:
    return LockProblem(
        f"{public_address(place)} cannot be reached from this machine; run `make lock` where it can. {_KEPT}"
    )
