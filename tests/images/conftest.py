"""What the tests of the images share. They need root, and the programs that .ci/run installs."""

import json
import sys
import venv

import pytest

from builder.pipeline import build
from tests.support.images import CPU, ROOT, build_image, copy_repository, run, shared_directory


@pytest.fixture(scope="session")
def cpu(tmp_path_factory):
    return build_image(CPU, tmp_path_factory.mktemp("cpu") / "result")


@pytest.fixture(scope="session")
def demo():
    """What the demo's model is known to answer."""
    return json.loads((ROOT / "demo/prompts.json").read_text())[0]


def engine_directory(factory, config):
    """A folder with the engine.tar of a config, which any user can read."""
    directory = shared_directory(factory, "engine")
    (directory / "config.yaml").write_text(json.dumps(config))
    build(str(directory / "config.yaml"), directory / "engine.tar")
    (directory / "engine.tar").chmod(0o644)
    return directory


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """The folder of the demo's engine.tar."""
    return engine_directory(tmp_path_factory, {"engine": "ctranslate2", "model": str(ROOT / "demo/model")})


@pytest.fixture(scope="session")
def mock(tmp_path_factory):
    """The folder of a mock's engine.tar, which every runner serves."""
    return engine_directory(tmp_path_factory, {"engine": "mock"})


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """A copy of the repository that a test may change."""
    return copy_repository(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="session")
def stand_in_locks(tmp_path_factory):
    """The locks, with stand-ins for what only its publishers have."""
    directory = tmp_path_factory.mktemp("stand-ins")
    run(sys.executable, "-m", "nix.lock.stand_ins", directory, cwd=ROOT)
    return directory / "locks"


@pytest.fixture(scope="session")
def judges(tmp_path_factory):
    """The folder of the programs that images are judged by."""
    place = tmp_path_factory.mktemp("judges")
    venv.create(place, with_pip=True)
    lock = ROOT / "requirements/judges.txt"
    run(place / "bin/pip", "install", "--quiet", "--no-deps", "--require-hashes", "--requirement", lock)
    return place / "bin"
