"""Changes of the real vLLM, made where it is imported: differences from what we assume of it, and one help.

VLLM_CHANGES names some, between commas. The module that one changes is changed as soon as it has been executed.
"""

import importlib.util
import os
import sys
import time


def _version(module):
    module.__version__ = "0.99.0"


def _no_abort_requests(module):
    module.SyncMPClient.abort_requests = lambda *_: None


def _renamed_outputs(module):
    module.EngineCoreOutputs.__annotations__["output_list"] = module.EngineCoreOutputs.__annotations__.pop(
        "outputs"
    )
    del module.EngineCoreOutputs.outputs


def _patient(module):
    """On the CPU a process of its own makes the tokens, and the engine core waits for it in a loop that hardly
    lets its other threads run: on few cores the tokens then leave it all at once, at the end of a text.
    """
    module.sched_yield = lambda: time.sleep(0.0001)


def _mixed_structures(module):
    """A request has the structure of the one before it."""
    compile_grammar = module.GuidanceBackend.compile_grammar
    asked = []

    def of_another(self, kind, structure, *more, **further):
        asked.append((kind, structure))
        return compile_grammar(self, *asked[max(0, len(asked) - 2)], *more, **further)

    module.GuidanceBackend.compile_grammar = of_another


_CHANGES = {
    "patient": ("vllm.distributed.device_communicators.shm_broadcast", _patient),
    "another version": ("vllm", _version),
    "renamed outputs": ("vllm.v1.engine", _renamed_outputs),
    "mixed structures": ("vllm.v1.structured_output.backend_guidance", _mixed_structures),
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

        spec.loader.exec_module = exec_module  # type: ignore[method-assign] # changes come in by this way
        return spec


for name in filter(None, os.environ.get("VLLM_CHANGES", "").split(",")):
    sys.meta_path.insert(0, _Changed(*_CHANGES[name]))
