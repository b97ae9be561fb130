"""What every part uses."""

import os

VERSION = "0.1.0"

# An empty variable counts as unset (docs/environment.md); the hub's library and OpenSSL, which read theirs
# later, would take it as it is: no address, no folder, no token, no authority.
for _name in [name for name, value in os.environ.items() if not value]:
    if _name.startswith("HF_") or _name == "SSL_CERT_FILE":
        del os.environ[_name]
