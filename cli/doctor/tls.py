"""Certificates: which authorities this machine trusts, and whether the hub can be reached with them."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shared.errors import SettingInvalid
from shared.http import proxy_variable
from shared.hub_settings import check_hub_settings
from shared.proxies import proxy_problem
from shared.source import is_web_address
from shared.tls import settings_problem, why_refused

from .check import Check, Finding, error, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 5.0


def _look() -> Iterator[Finding]:
    if problem := settings_problem():
        yield error(f"{problem}.", "Correct it, or unset it.")
        return
    context = ssl.create_default_context()
    places = ssl.get_default_verify_paths()
    # The context reads files right away, but a folder only when it looks for a certificate.
    folder = Path(places.capath) if places.capath else None
    if not context.cert_store_stats()["x509_ca"] and not (folder and any(folder.iterdir())):
        yield error(
            "No certificate authority is trusted here: nothing can be fetched over https.",
            "Install the package ca-certificates, or set SSL_CERT_FILE to a file of certificates.",
        )
        return
    yield ok(f"Certificates: {os.environ.get('SSL_CERT_FILE') or places.cafile or places.capath}")
    try:
        check_hub_settings()
    except SettingInvalid as invalid:
        yield warning(invalid.message.format(**invalid.details), "Correct it, or unset it.")
        return
    from huggingface_hub import constants

    yield _reach(constants.ENDPOINT, context)


def _reach(url: str, context: ssl.SSLContext) -> Finding:
    if not is_web_address(url):
        # Not shown: without a scheme, what may be a password cannot be told apart.
        return warning(
            "HF_ENDPOINT is not an http or https URL.",
            "Correct it (such as to https://hub.example.com), or unset it.",
        )
    if problem := proxy_problem():
        return warning(f"{problem}.", "Correct it, or unset it.")
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or {"https": 443}.get(parts.scheme, 80)
    if proxy := proxy_variable(parts.scheme, host):
        return ok(f"{host} is reached through the proxy in {proxy.upper()}_PROXY; not tried")
    try:
        with socket.create_connection((host, port), _SECONDS) as plain:
            if parts.scheme == "https":
                context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as refused:
        return warning(
            f"The certificate of {host} is not trusted: {refused.verify_message.rstrip('.')}.",
            "Behind a company's proxy, set SSL_CERT_FILE to a file with its certificate.",
        )
    except ssl.SSLError as refused:
        reason = why_refused(refused)
    except TimeoutError:
        reason = f"no answer within {_SECONDS:g} s"
    except UnicodeError:
        reason = "no host has such a name"
    except OSError as failed:
        reason = failed.strerror or str(failed)
    else:
        return ok(f"{host} can be reached")
    return warning(
        f"{host} cannot be reached: {reason}.",
        "Set HTTPS_PROXY if there is a proxy; otherwise use a mirror (HF_ENDPOINT) or models in a folder.",
    )


CHECK = Check("tls", "Certificates, and the connection to the Hugging Face hub", _look)
