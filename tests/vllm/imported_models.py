"""Which of vLLM's models cannot be imported, and why: `imported_models.py RESULT`, in vLLM's environment."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path


def main() -> None:
    import vllm.model_executor.models as models

    failed = {}
    for found in pkgutil.iter_modules(models.__path__):
        try:
            importlib.import_module(f"{models.__name__}.{found.name}")
        except Exception as error:  # whatever a model's packages raise
            failed[found.name] = [getattr(error, "name", None), f"{type(error).__name__}: {error}"]
    Path(sys.argv[1]).write_text(json.dumps(failed))


if __name__ == "__main__":
    main()
