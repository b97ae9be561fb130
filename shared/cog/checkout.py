"""What a checkout lacks when Cog's own command runs it: its image has Python packages alone."""

from __future__ import annotations

import os
import subprocess
import sys

from shared.layout import SETUP, is_checkout


def make_parts() -> None:
    """Make Triton, the bridge and the engines' environments at COG_TRITON_HOME, unless they are there.

    Nothing is made in an image of ours. What fails is in the log; what is then missing
    raises PartNotInstalled where it is needed.
    """
    if os.environ.get("COG_TRITON_HOME") and is_checkout():
        subprocess.run([sys.executable, SETUP, "--parts"], stdin=subprocess.DEVNULL, check=False)
