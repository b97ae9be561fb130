"""`cog-triton acceptance` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from typing import TYPE_CHECKING

from cli.acceptance.server import COMMAND
from shared.layout import PROJECT_ROOT
from tests.support.processes import MARK, wait_gone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def accept(
    model: Path, work_dir: Path, *arguments: str, home: Path, libraries: Path, environment: Mapping[str, str]
) -> tuple[int, dict]:
    """Run it with the parts in `home` and the driver in `libraries` (see driver.py); its status and its JSON.

    No process may be left. ENGINE_ENVIRONMENT in `environment` names what the engine is given of it.
    """
    mark = uuid.uuid4().hex
    given = {
        **environment,
        "COG_TRITON_HOME": str(home),
        "LD_LIBRARY_PATH": str(libraries),
        "LD_PRELOAD": str(libraries / "limits.so"),
        "ENGINE_ENVIRONMENT": ",".join(filter(None, (MARK, environment.get("ENGINE_ENVIRONMENT")))),
        MARK: mark,
    }
    done = subprocess.run(
        [*COMMAND, "acceptance", str(model), "--work-dir", str(work_dir), "--json", *arguments],
        cwd=PROJECT_ROOT,
        env=os.environ | given,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert wait_gone(mark) == {}
    return done.returncode, json.loads(done.stdout)
