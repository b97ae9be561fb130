"""Why a connection over TLS failed, or cannot be made, without what Python puts around it."""

from __future__ import annotations

import os
from ssl import PROTOCOL_TLS_CLIENT, SSLCertVerificationError, SSLContext, SSLError, create_default_context

_NOT_OF_CERTIFICATE = "the key is not that of the certificate"
_UNUSABLE = {
    "EE_KEY_TOO_SMALL": "the certificate's key is too small",
    "CA_KEY_TOO_SMALL": "the key of an authority in the certificate's chain is too small",
    "CA_MD_TOO_WEAK": "the hash of a signature in the certificate's chain is too weak",
    "KEY_VALUES_MISMATCH": _NOT_OF_CERTIFICATE,
    "NO_CERTIFICATE_ASSIGNED": _NOT_OF_CERTIFICATE,  # a key of another type
}


def settings_problem() -> str | None:
    """A clause about the file that SSL_CERT_FILE or SSLKEYLOGFILE names; None if each is as it must be.

    Python itself passes over a file of certificates that it cannot use, while some libraries fail with it.
    """
    context = SSLContext(PROTOCOL_TLS_CLIENT)
    certificates, log = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSLKEYLOGFILE")
    try:
        if certificates:
            context.load_verify_locations(certificates)
    except SSLError:
        return f"SSL_CERT_FILE is {certificates}, which has no certificates, or damaged ones"
    except OSError as error:
        return f"SSL_CERT_FILE is {certificates}, which cannot be read ({error.strerror})"
    try:
        if log:
            context.keylog_filename = log
    except OSError as error:
        return f"SSLKEYLOGFILE is {log}, which cannot be written ({error.strerror})"
    return None


def trusting() -> SSLContext:
    """For clients: trusts the certificates of the system, or of SSL_CERT_FILE.

    Raises OSError, whose text is a clause, when it cannot be made.
    """
    try:
        return create_default_context()
    except OSError as error:
        raise OSError(settings_problem() or error.strerror) from None


def in_causes(error: BaseException) -> SSLError | None:
    """The error of TLS that caused `error`, if one did."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause


def why_refused(error: SSLError) -> str:
    """A clause about the server."""
    if isinstance(error, SSLCertVerificationError):
        return f"the server's certificate is not trusted ({error.verify_message.rstrip('.')})"
    return f"no connection over TLS ({_in_words(error.reason or 'unknown reason')})"


def why_unusable(error: SSLError) -> str:
    """A clause about a server's certificate and key, which OpenSSL refused to load."""
    # None: the reason is its module for PEM, which Python does not name.
    if error.reason in (None, "PEM_LIB"):
        return "they are not a certificate and its private key in PEM"
    return _UNUSABLE.get(error.reason, f"OpenSSL refuses them ({_in_words(error.reason)})")


def _in_words(reason: str) -> str:
    return reason.replace("_", " ").lower()
