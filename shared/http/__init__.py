"""Reading over HTTP, for builder, runner and command line: what a server may take stands in `limits`."""

from .failures import TooSlow, Unreachable
from .pace import paced
from .reading import Arriving, Progress, download, read

__all__ = ["Arriving", "Progress", "TooSlow", "Unreachable", "download", "paced", "read"]
