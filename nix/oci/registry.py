"""The parts of a registry's HTTP API (OCI distribution 1.1) that skopeo does not cover.

Credentials are those of `docker login`. Raises Problem, which says what to do.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead, InvalidURL
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError

from .image import MANIFEST, Blob
from .problem import Problem

if TYPE_CHECKING:
    from email.message import Message

UNTRUSTED = (
    "The certificate of {host} is not trusted; if an authority of your own has signed it, SSL_CERT_FILE can "
    "name a file with that authority: {reason}"
)
INDEX = "application/vnd.oci.image.index.v1+json"
_TIMEOUT_SECONDS = 60
_MAX_BYTES = 64 << 20  # of an answer
_LOCAL = re.compile(r"(localhost|127\.[0-9.]+)(:|$)")
# As docker tells a host from the first part of a repository on its hub.
_HOST = re.compile(r"localhost|.*\..*|.+:.+")
_HUB = "docker.io"
_HUBS_API = "registry-1.docker.io"
_HUBS_LOGIN = "https://index.docker.io/v1/"  # where `docker login` keeps it
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Answer:
    """What a registry answers to one request."""

    status: int
    headers: Message
    content: bytes


class Registry:
    """One repository of a registry; `reference` is host/repository, with or without :tag and @digest."""

    def __init__(self, reference: str) -> None:
        self.host, slash, path = reference.partition("/")
        if not slash or not path or not _HOST.fullmatch(self.host):
            raise Problem(f"{reference} does not name a repository: write host/repository:tag.")
        self.repository = re.sub(r"(:[^/@]*)?(@.*)?$", "", path)
        server = _HUBS_API if self.host == _HUB else self.host
        self._base = f"{'http' if _LOCAL.match(server) else 'https'}://{server}/v2/{self.repository}/"
        self._authorization = ""

    def manifest(self, reference: str) -> bytes | None:
        """The manifest of a tag or digest; None when there is none."""
        answer = self._ask("GET", f"manifests/{reference}", accept=f"{MANIFEST}, {INDEX}", missing=True)
        return self._verified(reference, answer.content) if answer.status == HTTPStatus.OK else None

    def referrers(self, digest: str) -> list[dict[str, Any]] | None:
        """The descriptors of what refers to a digest; None if the registry does not list it."""
        answer = self._ask("GET", f"referrers/{digest}", accept=INDEX, missing=True)
        return self.listed(answer.content) if answer.status == HTTPStatus.OK else None

    def listed(self, index: bytes) -> list[dict[str, Any]]:
        """The descriptors in an index."""
        rows = self._object(index).get("manifests") or []  # some registries write null for none
        if not isinstance(rows, list) or not all(isinstance(row, dict) and "digest" in row for row in rows):
            raise self._no_registry()
        return rows

    def blob(self, digest: str) -> bytes:
        return self._verified(digest, self._ask("GET", f"blobs/{digest}").content)

    def put_blob(self, blob: Blob) -> None:
        if self._ask("HEAD", f"blobs/{blob.digest}", missing=True).status == HTTPStatus.OK:
            return
        begun = self._ask("POST", "blobs/uploads/", content=b"")
        place = self._address(begun.headers.get("Location", ""))
        joint = "&" if "?" in place else "?"
        place += f"{joint}digest={urllib.parse.quote(blob.digest)}"
        self._ask("PUT", place, content=blob.content, kind="application/octet-stream")

    def put_manifest(self, reference: str, content: bytes, kind: str = MANIFEST) -> bool:
        """Store a manifest; return whether the registry itself records what it refers to (`subject`)."""
        answer = self._ask("PUT", f"manifests/{reference}", content=content, kind=kind)
        return "OCI-Subject" in answer.headers

    def _ask(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        kind: str = "",
        accept: str = "*/*",
        missing: bool = False,
    ) -> Answer:
        """One request, repeated with credentials if they are asked for. `missing`: 404 is an answer."""
        url = urllib.parse.urljoin(self._base, path)
        for last in (False, True):
            # The scheme is that of the registry's own address, which the person who pushes has given.
            request = urllib.request.Request(url, content, {"Accept": accept}, method=method)  # noqa: S310
            if kind:
                request.add_header("Content-Type", kind)
            # A redirect leads to another host, which must not get the credentials.
            if self._authorization and url.startswith(self._base.partition("/v2/")[0] + "/"):
                request.add_unredirected_header("Authorization", self._authorization)
            answer = self._send(request)
            if answer.status != HTTPStatus.UNAUTHORIZED or last:
                break
            self._authorization = self._authorize(answer.headers.get("WWW-Authenticate", ""))
        # urllib follows redirects only where nothing is sent: after another one, nothing has been stored.
        if answer.status < HTTPStatus.MULTIPLE_CHOICES or (missing and answer.status == HTTPStatus.NOT_FOUND):
            return answer
        raise self._refused(answer.status, method, url)

    def _send(self, request: urllib.request.Request) -> Answer:
        try:
            # Proxies are for what is elsewhere; skopeo asks none about this machine either.
            proxies = urllib.request.ProxyHandler({} if _LOCAL.match(request.host) else None)
            opener = urllib.request.build_opener(proxies)
            with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                content = answer.read(_MAX_BYTES)
                if answer.length:  # what is left; http.client itself does not mind
                    raise ConnectionError("its answer is cut short")
                return Answer(answer.status, answer.headers, content)
        except HTTPError as error:
            with error:
                return Answer(error.code, error.headers, b"")  # nobody asks what a refusal says
        except OSError as error:
            # urllib wraps what made it fail.
            cause = error.reason if isinstance(error, URLError) else error
            if isinstance(cause, SSLCertVerificationError):
                raise Problem(UNTRUSTED.format(host=self.host, reason=f"{cause.verify_message}.")) from None
            reason = getattr(cause, "strerror", None) or cause
            raise Problem(f"{self.host} cannot be reached; try again: {reason}.") from None
        except (InvalidURL, ValueError):
            raise Problem(
                f"{self.host}/{self.repository} cannot be an address: write host/repository:tag."
            ) from None
        except IncompleteRead:
            raise Problem(f"{self.host} cannot be reached; try again: its answer is cut short.") from None
        except HTTPException:
            raise self._no_registry() from None

    def _authorize(self, challenge: str) -> str:
        """The header that a challenge asks for (RFC 7617, and the registries' token protocol)."""
        names = [_HUBS_LOGIN, self.host] if self.host == _HUB else [self.host]
        basic = next((found for name in names if (found := _credentials(name))), "")
        scheme = challenge.partition(" ")[0].lower()
        if scheme == "basic":
            return f"Basic {basic}" if basic else ""
        asked = dict(_CHALLENGE.findall(challenge))
        if scheme != "bearer" or "realm" not in asked:
            raise Problem(
                f"{self.host} asks for credentials in an unknown way ({scheme or 'it names none'}): "
                "check that it is a registry."
            )
        scope = asked.get("scope") or f"repository:{self.repository}:pull,push"
        query = urllib.parse.urlencode({"service": asked.get("service", self.host), "scope": scope})
        # An address of the registry's choice, as in the protocol; it gets what the registry may know.
        address = f"{self._address(asked['realm'])}?{query}"
        request = urllib.request.Request(address)  # noqa: S310 - _address allows only http and https
        if basic:
            request.add_unredirected_header("Authorization", f"Basic {basic}")
        answer = self._send(request)
        if answer.status != HTTPStatus.OK:
            raise self._refused(answer.status, "GET", address)
        given = self._object(answer.content)
        return f"Bearer {given.get('token') or given.get('access_token')}"

    def _verified(self, reference: str, content: bytes) -> bytes:
        """What arrived for a reference, which may be its digest."""
        if reference.startswith("sha256:") and Blob(content).digest != reference:
            raise Problem(f"{self.host} sends something else for {reference}: try again.")
        return content

    def _object(self, content: bytes) -> dict[str, Any]:
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._no_registry()
        return found

    def _address(self, place: str) -> str:
        """What the registry names as the next address. urllib would also open local files."""
        try:
            address = urllib.parse.urljoin(self._base, place)
            is_http = urllib.parse.urlsplit(address).scheme in {"http", "https"}
        except ValueError:
            is_http = False
        if not place or not is_http:
            raise self._no_registry()
        return address

    def _refused(self, status: int, method: str, url: str) -> Problem:
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return Problem(
                f"{self.host} refused the credentials for {self.repository}: `docker login {self.host}`."
            )
        path = urllib.parse.urlsplit(url).path
        return Problem(
            f"{self.host} answers {status} to {method} {path}: check that it is a registry, and try again."
        )

    def _no_registry(self) -> Problem:
        return Problem(f"{self.host} does not answer as a registry does: check the address.")


def _credentials(host: str) -> str:
    """What `docker login` or `skopeo login` has stored for a host, as basic credentials; else empty."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    dockers = os.path.expanduser("~/.docker")  # noqa: PTH111 - pathlib fails for a user without a home
    places = [
        os.environ.get("REGISTRY_AUTH_FILE", ""),
        f"{runtime}/containers/auth.json",
        f"/run/containers/{os.getuid()}/auth.json",
        f"{os.environ.get('DOCKER_CONFIG') or dockers}/config.json",
    ]
    for place in places:
        try:
            kept = json.loads(Path(place).read_text())
        except (OSError, ValueError):
            continue
        if stored := _text(kept, "auths", host, "auth"):
            return stored
        if helper := _text(kept, "credHelpers", host) or _text(kept, "credsStore"):
            program = f"docker-credential-{helper}"
            try:
                done = subprocess.run(
                    [program, "get"], input=host, capture_output=True, text=True, check=False
                )
            except OSError as error:
                raise Problem(
                    f"{place} names {program}, which cannot be started: {error.strerror}."
                ) from None
            if done.returncode == 0:
                return _told(program, done.stdout)
    return ""


def _told(program: str, answer: str) -> str:
    try:
        told = json.loads(answer)
        return base64.b64encode(f"{told['Username']}:{told['Secret']}".encode()).decode()
    except (ValueError, LookupError, TypeError):
        raise Problem(f"{program} answers with something other than credentials: log in again.") from None


def _text(kept: object, *path: str) -> str:
    """The text that is kept there; empty when there is none. People write these files too."""
    for key in path:
        kept = kept.get(key) if isinstance(kept, dict) else None
    return kept if isinstance(kept, str) else ""
