"""What CTranslate2 is asked depends on the parameters that the engine says it honours, and on no other."""

from __future__ import annotations

import json
import os
import subprocess

from runner.engines.catalogue import ENGINES
from shared.layout import PROJECT_ROOT
from tests.unit.ctranslate2.checkpoints import engine_python
from tests.unit.engines.test_checks import ASKING

# The library's own call is recorded, in the environment that has the library.
SCRIPT = """
import json, sys
from dataclasses import replace
from queue import SimpleQueue
from runner.protocol.engine import Request, SamplingParameters
from runner.engines.ctranslate2 import CTranslate2Engine, CTranslate2Settings

class Recorder:
    def generate_batch(self, prompts, *, callback, **options):
        self.options = options

engine = object.__new__(CTranslate2Engine)
engine._settings = CTranslate2Settings("float32", 1, 1, 128, None)
engine._vocabulary = ["a"] * 100
engine._generator = Recorder()
engine._cancelled, engine._outputs = set(), SimpleQueue()

def asked(sampling):
    assert engine._generate(Request(1, [1, 2], 20, sampling=sampling)).error is None
    return engine._generator.options

base = SamplingParameters(top_k=40, top_p=0.5, temperature=0.5)
values = json.loads(sys.argv[1])
changes = [name for name, value in values.items() if asked(replace(base, **{name: value})) != asked(base)]
print(json.dumps(changes))
"""


def test_every_honoured_parameter_reaches_the_library_and_no_other():
    done = subprocess.run(
        [engine_python(), "-c", SCRIPT, json.dumps(ASKING)],
        env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == ENGINES["ctranslate2"].honours
