"""Differences between the real vLLM and what we assume of it, seeded where vLLM is imported.

VLLM_FAULTS names some, between commas. The module that one changes is changed as soon as it has been executed.
"""

import importlib.util
import os
import sys


def _version(module):
    module.__version__ = "0.99.0"


def _no_abort_requests(module):
    module.SyncMPClient.abort_requests = lambda *_: None


def _renamed_outputs(module):
    module.EngineCoreOutputs.__annotations__["output_list"] = module.EngineCoreOutputs.__annotations__.pop(
        "outputs"
    )
    del module.EngineCoreOutputs.outputs


_FAULTS = {
    "another version": ("vllm", _version),
    "renamed outputs": ("vllm.v1.engine", _renamed_outputs),
    "no abort": ("vllm.v1.engine.core_client", _no_abort_requests),
}


class _Changed:
    """Finds one module, and changes it after its execution."""

    def __init__(self, name, change):
        self.name, self.change = name, change

    def find_spec(self, name, _path=None, _target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self.change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign] # faults come in by this way
        return spec


for fault in filter(None, os.environ.get("VLLM_FAULTS", "").split(",")):
    sys.meta_path.insert(0, _Changed(*_FAULTS[fault]))
