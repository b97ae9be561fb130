"""How long a server may take, for everything that reads over HTTP."""

import tenacity

CONNECT_SECONDS = 10
SILENCE_SECONDS = 30
"""For each wait for more data."""
ANSWER_SECONDS = 30
"""From a request to the end of the answer's headers, however they come."""
SLOWEST = 1000
"""Bytes per second of a body, over `PACE_SECONDS` of waiting; a slower connection is abandoned."""
PACE_SECONDS = 30
PATIENCE_SECONDS = 300
"""In so long, a part of a file must come at `SLOWEST`, too, over all its connections: one that breaks after
a byte is no failure by itself.
"""
REDIRECTS = 10
ATTEMPTS = 5
"""Attempts in a row that bring nothing, for a file that is large enough to be worth them."""
WAIT = tenacity.wait_exponential_jitter(multiplier=0.5, max=8)
"""Seconds between two of them."""
