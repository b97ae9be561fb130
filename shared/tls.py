"""Why a connection over TLS failed, without what Python puts around it."""

from __future__ import annotations

from ssl import SSLCertVerificationError, SSLError


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
    return f"no connection over TLS ({(error.reason or 'unknown reason').replace('_', ' ').lower()})"
