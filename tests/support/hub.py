"""A Hugging Face hub on loopback: the part of its HTTP API that downloads of models use.

The answers are those of the hub: paths, status codes, `X-Error-Code`, `X-Repo-Commit`, `ETag`, and for large
files (here: *.safetensors) a redirect to where they are stored.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tests.support.loopback import LoopbackServer, QuietHandler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


STRANGE = b"not what any repository has"
_MOST_SENT = 1 << 30  # bytes that are as good as no end


@dataclass
class Repository:
    directory: Path
    token: str | None = None  # private: unknown to everyone who does not send it
    gated: bool = False  # known to all, but its files only for those who send the token
    revisions: dict[str, str] = field(default_factory=dict)  # branches and tags, beside main

    @property
    def commit(self) -> str:
        digest = hashlib.sha1()
        for name in self.files():
            digest.update(name.encode() + (self.directory / name).read_bytes())
        return digest.hexdigest()

    def files(self) -> list[str]:
        return sorted(
            p.relative_to(self.directory).as_posix() for p in self.directory.rglob("*") if p.is_file()
        )

    def resolves(self, revision: str) -> bool:
        return revision in {"main", self.commit, *self.revisions}


class Hub(LoopbackServer):
    """Add repositories to `repositories`."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []  # "METHOD /path", in the order they came
        self.tokens: set[str] = set()  # every token that was sent
        self.tokens_of_storage: set[str] = set()  # those that came to where files are stored
        self.failing = False  # answer everything with 503
        self.cut_after: int | None = None  # bytes of the next stored file before the connection breaks, once
        self.fails_after_cut = False  # then answer that file with 503 from then on
        self._broken: set[str] = set()
        self.ranges: list[str] = []  # the Range headers that were sent
        self.tampered: dict[str, bytes] = {}  # what is sent instead of these files
        # The values of these headers, of the commit ("sha"), of the SHA-256 of large files in a "tree", and
        # the "body" of every answer in JSON.
        self.claims: dict[str, str] = {}
        self.compressing = ""  # below which path answers are compressed, asked for or not
        self.endless = ""  # below which path no answer ever ends
        self.sent_endlessly = 0  # bytes of those
        self.also_lists: list[str] = []  # files that no repository has; each is sent as `STRANGE`
        self.next_page = ""  # where the next list of files says that it goes on
        self.lists_end = True  # otherwise every list says that it goes on at its beginning
        self.moved = ""  # the path below which a redirect says that the API is
        self._stores_answer = threading.Event()
        self._stores_answer.set()
        super().__init__(_handler(self))
        # Another host, as with the hub: its clients follow redirects to the same host without a look.
        self.storage_url = f"http://localhost:{self.server_port}"

    def file_requests(self) -> list[str]:
        return [request for request in self.requests if "/resolve/" in request or "/stored/" in request]

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Let downloads of stored files wait for the end of this context."""
        self._stores_answer.clear()
        try:
            yield
        finally:
            self._stores_answer.set()


def _handler(hub: Hub) -> type[QuietHandler]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            self.sent_token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if self.sent_token:
                hub.tokens.add(self.sent_token)
                if path.startswith("/stored/"):
                    hub.tokens_of_storage.add(self.sent_token)
            if hub.failing or (hub.fails_after_cut and self.path in hub._broken):
                self._send(503, b"")
            elif path.startswith("/stored/"):
                hub._stores_answer.wait(60)
                _, _, name, file = path.split("/", 3)
                self._file(hub.repositories[name.replace("--", "/")].directory / file, {})
            elif hub.moved and path.startswith("/api/"):
                self._send(307, b"", {"Location": hub.moved + self.path})
            elif path.startswith(f"{hub.moved}/api/models/"):
                self._api(path.removeprefix(f"{hub.moved}/api/models/"))
            else:
                self._resolve(path.removeprefix("/"))

        def _api(self, path: str) -> None:
            if "/tree/" in path:
                name, revision = path.split("/tree/")
                if repository := self._repository(name, revision):
                    entries = [_tree_entry(repository, file) for file in repository.files()]
                    entries += [_entry(file, STRANGE) for file in hub.also_lists]
                    for entry in entries:
                        if "tree" in hub.claims and isinstance(lfs := entry.get("lfs"), dict):
                            lfs["oid"], entry["xetHash"] = hub.claims["tree"], "0" * 64
                    page, hub.next_page = hub.next_page if hub.lists_end else hub.url + self.path, ""
                    self._json(entries, {"Link": f'<{page}>; rel="next"'} if page else {})
            else:
                name, _, revision = path.partition("/revision/")
                if repository := self._repository(name, revision or "main"):
                    entries = [_tree_entry(repository, file) for file in repository.files()]
                    siblings = [_sibling(entry) for entry in entries]
                    siblings += [_sibling(_entry(file, STRANGE)) for file in hub.also_lists]
                    commit = hub.claims.get("sha", repository.commit)
                    self._json({"id": name, "sha": commit, "siblings": siblings, "private": False})

        def _resolve(self, path: str) -> None:
            name, _, rest = path.partition("/resolve/")
            revision, _, file = rest.partition("/")
            repository = self._repository(name, revision)
            if repository is None:
                return
            if repository.gated and self.sent_token != repository.token:
                self._error(403, "GatedRepo", "Access to this model is restricted.")
            elif file in hub.also_lists:
                headers = {"X-Repo-Commit": repository.commit}
                self._send(200, STRANGE, headers | {"ETag": f'"{hashlib.sha256(STRANGE).hexdigest()}"'})
            elif file not in repository.files():
                self._error(404, "EntryNotFound", "Entry not found")
            elif file.endswith(".safetensors"):
                stored = repository.directory / file
                headers = {
                    "Location": f"{hub.storage_url}/stored/{name.replace('/', '--')}/{file}",
                    "X-Repo-Commit": repository.commit,
                    "X-Linked-Size": str(stored.stat().st_size),
                    "X-Linked-Etag": f'"{hashlib.sha256(stored.read_bytes()).hexdigest()}"',
                }
                self._send(302, b"", headers)
            else:
                self._file(repository.directory / file, {"X-Repo-Commit": repository.commit})

        def _repository(self, name: str, revision: str) -> Repository | None:
            repository = hub.repositories.get(name)
            hidden = repository and repository.token and not repository.gated
            if repository is None or (hidden and self.sent_token != repository.token):
                # The hub tells strangers that a missing model wants a password.
                self._error(404 if self.sent_token else 401, "RepoNotFound", "Repository not found")
                return None
            if not repository.resolves(revision):
                self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
                return None
            return repository

        def _file(self, path: Path, headers: dict[str, str]) -> None:
            content = hub.tampered.get(path.name) or path.read_bytes()
            headers |= {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "Accept-Ranges": "bytes"}
            status = 200
            if wanted := self.headers.get("Range"):
                hub.ranges.append(wanted)
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                start, stop = int(first), min(int(last or len(content)) + 1, len(content))
                headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
                content = content[start:stop]
                status = 206
            self._send(status, content, headers)

        def _json(self, answer: object, headers: Mapping[str, str] = MappingProxyType({})) -> None:
            body = hub.claims.get("body", json.dumps(answer)).encode()
            self._send(200, body, {"Content-Type": "application/json", **headers})

        def _error(self, status: int, code: str, message: str) -> None:
            body = json.dumps({"error": message}).encode()
            # As the hub has it for some models: of what refuses, no name of a content.
            weak = f'W/"{len(body):x}-6WrD95JiXZalWmyM/8wvo3ELv+Y"'
            self._send(status, body, {"X-Error-Code": code, "X-Error-Message": message, "ETag": weak})

        def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            if hub.endless and hub.endless in self.path and self.command == "GET":
                self._send_endlessly(headers or {})
                return
            if hub.compressing and hub.compressing in self.path:
                body, headers = gzip.compress(body), {**(headers or {}), "Content-Encoding": "gzip"}
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(name, hub.claims.get(name, value))
            self.end_headers()
            if self.command == "HEAD":
                return
            if hub.cut_after is not None and "/stored/" in self.path and len(body) > hub.cut_after:
                body, hub.cut_after = body[: hub.cut_after], None
                if hub.fails_after_cut:
                    hub._broken.add(self.path)
                self.close_connection = True
            with suppress(ConnectionError):  # a client that has all it wants of this connection
                self.wfile.write(body)

        def _send_endlessly(self, headers: dict[str, str]) -> None:
            self.send_response(200)
            for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
                self.send_header(name, value)
            self.end_headers()
            piece = bytes(1 << 16)
            with suppress(ConnectionError):
                while hub.sent_endlessly < _MOST_SENT:
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    hub.sent_endlessly += len(piece)
            self.close_connection = True

    return Handler


def _sibling(entry: dict[str, object]) -> dict[str, object]:
    sibling = {"rfilename": entry["path"], "size": entry["size"], "blobId": entry["oid"]}
    if isinstance(lfs := entry.get("lfs"), dict):
        sibling["lfs"] = {"sha256": lfs["oid"], "size": lfs["size"], "pointerSize": lfs["pointerSize"]}
    return sibling


def _tree_entry(repository: Repository, file: str) -> dict[str, object]:
    return _entry(file, (repository.directory / file).read_bytes())


def _entry(file: str, content: bytes) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "file",
        "path": file,
        "size": len(content),
        "oid": hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest(),
    }
    if file.endswith(".safetensors"):
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry
