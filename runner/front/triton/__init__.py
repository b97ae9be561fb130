"""Triton's own protocols, for its own clients: bounded, and then forwarded to its Unix sockets."""
