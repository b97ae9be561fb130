"""Reading over HTTP, for builder, runner and command line; `limits` says how long a server may take."""

from .connections import proxy_variable
from .failures import TooSlow, Unreachable
from .pace import paced
from .reading import Arriving, Progress, download, read

__all__ = ["Arriving", "Progress", "TooSlow", "Unreachable", "download", "paced", "proxy_variable", "read"]
