"""Replicate's API, as far as docs/replicate.md talks to it, which runs images of a registry here."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from shared.cog.server import free_port
from tests.support.loopback import LoopbackServer, QuietHandler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

API = "api.replicate.com"
TOKEN = "token"
_READY_SECONDS = 120
_HARDWARE = {"cpu", "gpu-t4", "gpu-l40s", "gpu-a100-large", "gpu-h100"}


def make_certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """A certificate for these names, which certifies itself; its file and that of its key."""
    certificate, key = folder / "tls.pem", folder / "tls.key"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=loopback"]
    alternatives = ",".join(f"DNS:{name}" for name in names)
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = [*request, "-addext", f"subjectAltName={alternatives}", *files]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def answer_json(self, status: int, answer: object) -> None:
        self.answer(status, json.dumps(answer).encode())


@contextmanager
def replicate(
    registry: str,
    tls: tuple[Path, Path],
    *,
    docker: Path | str = "docker",
    address: tuple[str, int] = ("127.0.0.1", 0),
) -> Iterator[int]:
    """Replicate's API over HTTPS; its port.

    A model that was made there is the repository of that name in `registry` (host:port), and a prediction runs the
    image that was pushed to it in a container of `docker`.
    """
    models: dict[str, dict[str, Any]] = {}

    class Handler(_Handler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.body())

        def _answer(self, body: bytes) -> None:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self.answer_json(401, {"title": "Unauthenticated"})
                return
            found = re.fullmatch(r"/v1/models/([\w.-]+/[\w.-]+)", self.path)
            try:
                if self.path == "/v1/models":
                    self._make(json.loads(body))
                elif found and found[1] in models:
                    self.answer_json(
                        200, {**models[found[1]], "latest_version": _version(registry, found[1])}
                    )
                elif self.path == "/v1/predictions":
                    self._predict(json.loads(body))
                else:
                    self.answer_json(404, {"detail": "The requested resource could not be found."})
            except (KeyError, ValueError) as problem:
                self.answer_json(422, {"detail": repr(problem)})

        def _make(self, asked: dict[str, Any]) -> None:
            name = f"{asked['owner']}/{asked['name']}"
            if asked["visibility"] not in {"private", "public"} or asked["hardware"] not in _HARDWARE:
                raise ValueError(asked)
            models[name] = asked
            self.answer_json(201, {**asked, "latest_version": None})

        def _predict(self, asked: dict[str, Any]) -> None:
            version = asked["version"].rpartition(":")[2]
            (name,) = [name for name in models if (_version(registry, name) or {}).get("id") == version]
            answer = _run(str(docker), f"{registry}/{name}@sha256:{version}", asked["input"])
            self.answer_json(201, {**answer, "model": name, "version": version})

    with _serving(Handler, address, tls) as port:
        yield port


@contextmanager
def _serving(
    handler: type[_Handler], address: tuple[str, int], tls: tuple[Path, Path] | None = None
) -> Iterator[int]:
    server = LoopbackServer(handler, address)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with server:
        yield server.server_port


def _version(registry: str, name: str) -> dict[str, str] | None:
    """What was pushed last; Replicate names it by its digest."""
    command = [
        "skopeo",
        "inspect",
        "--tls-verify=false",
        "--format={{.Digest}}",
        f"docker://{registry}/{name}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"id": done.stdout.strip().removeprefix("sha256:")} if done.returncode == 0 else None


def _run(docker: str, image: str, inputs: object) -> dict[str, Any]:
    port = free_port()
    run = [docker, "run", "--detach", f"--env=PORT={port}", image]
    started = subprocess.run(run, capture_output=True, text=True, check=False)
    if started.returncode:
        raise ValueError(started.stderr)
    container = started.stdout.split()[-1]
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            deadline = time.monotonic() + _READY_SECONDS
            while not _is_ready(client):
                if time.monotonic() > deadline:
                    raise ValueError("it was not ready in time")
                time.sleep(0.2)
            answer: dict[str, Any] = client.post("/predictions", json={"input": inputs}).json()
            return answer
    finally:
        subprocess.run([docker, "rm", "--force", container], capture_output=True, check=False)


def _is_ready(client: httpx2.Client) -> bool:
    try:
        return client.get("/health-check").json()["status"] == "READY"
    except httpx2.TransportError:
        return False
