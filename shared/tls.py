"""Why a connection over TLS failed, without what Python puts around it."""

from __future__ import annotations

from ssl import SSLCertVerificationError, SSLError


def why_refused(error: SSLError) -> str:
    """A clause about the server."""
    if isinstance(error, SSLCertVerificationError):
        return f"the server's certificate is not trusted ({error.verify_message.rstrip('.')})"
    return f"no connection over TLS ({(error.reason or 'unknown reason').replace('_', ' ').lower()})"
