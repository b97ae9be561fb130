"""What every part uses."""

import os

VERSION = "0.1.0"

# An empty variable counts as unset (docs/environment.md); the hub's library, which is imported later, would
# take it as it is: no address, no folder, no token.
for _name in [name for name, value in os.environ.items() if name.startswith("HF_") and not value]:
    del os.environ[_name]
