"""HTTP: one process with one event loop that answers both APIs."""
