"""`cog run` in a clone: what Cog's command starts from cog.yaml and cog-builder.yaml, without its Docker image.

In that image `python -m cog.server.http` is run in /src, the clone, with the variables that are set here.
"""

from __future__ import annotations

import pytest
import yaml

from shared.cog.server import free_port
from shared.layout import PROJECT_ROOT
from tests.day_one.conftest import PREDICT


@pytest.fixture
def cog_run(user):
    """`cog_run(file, variables)`: the server, once it is ready. The parts of this checkout are those of .build/cog."""
    cog_home = user.folder / ".build/cog"
    cog_home.parent.mkdir(exist_ok=True)
    if not cog_home.exists():
        cog_home.symlink_to(PROJECT_ROOT / ".build")

    def run(file, variables=""):
        config = yaml.safe_load((user.folder / file).read_text())
        assert (user.folder / config["build"]["python_requirements"]).is_file()
        settings = [*config["environment"], f"COG_PREDICT_TYPE_STUB={config['run']}"]
        if "concurrency" in config:
            settings.append(f"COG_MAX_CONCURRENCY={config['concurrency']['max']}")
        user.variables["PORT"] = str(free_port())
        line = " ".join([*settings, variables]).replace("/src/", f"{user.folder}/")
        address = "localhost:$PORT/health-check"
        return user.starts(f"{line} python -m cog.server.http --host 127.0.0.1", address, says="READY")

    return run


def test_the_builder_builds(user, cog_run):
    user.write("mock.yaml", "engine: mock\n")
    builder = cog_run("cog-builder.yaml", "BUILDER_OUTPUT_DIR=/src/")
    answer = user.types(f"""{PREDICT}'{{"input": {{"config": "{user.folder}/mock.yaml"}}}}'""").json
    assert answer["status"] == "succeeded"
    builder.stop()
    assert "mock" in user.types("cog-triton inspect engine.tar").text


def test_the_runner_answers(user, cog_run):
    cog_run("cog.yaml", "COG_WEIGHTS=/src/engine.tar")
    answer = user.types(PREDICT + """'{"input": {"prompt": "Hello", "max_tokens": 3}}'""").json
    assert "".join(answer["output"]) == "0 1 2"
