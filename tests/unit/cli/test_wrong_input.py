"""Every argument and option of every command, as the command line itself lists them, with wrong values.

One at a time is wrong; the others are in RIGHT. Whatever it is, the command ends soon with one coded error, or typer's
usage error, in our words, and leaves its folder as it was.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from typer.main import get_command

from builder.pipeline import build
from cli.main import app
from runner.settings import Settings
from shared.cog.server import free_port
from shared.errors import GenericError, from_text
from shared.layout import PROJECT_ROOT
from tests.support.commands import run
from tests.support.loopback import LoopbackServer, QuietHandler
from tests.unit.cli.plan.test_plan import MEASURED

SECONDS = 30  # nothing here should take as long; four at a time, on a busy machine

# The right values, by command and parameter; one that is missing here is left out, or "1" where it is required.
RIGHT = {
    "acceptance": {"engine": "vllm", "only": "import"},
    "add-compiled": {"engine": "mock.tar", "output": "new.tar"},
    "build": {"config": "mock.yaml", "output": "new.tar"},
    "check": {"config": "mock.yaml"},
    "generate": {"engine": "none.tar", "prompt": "x"},
    "init": {"config": "new.yaml"},
    "inspect": {"engine": "mock.tar"},
    "instantiate": {"config": "mock.yaml", "base": "127.0.0.1:1/runner", "dest": "127.0.0.1:1/model", "environment": "COG_WEIGHTS=http://127.0.0.1:1/x"},
    "join": {"address": "127.0.0.1:1", "engine": "none.tar"},
    "model-repository": {"engine": "mock.tar", "out": "new"},
    "perf": {"url": "SERVER", "target": "cog-triton", "concurrency": "1", "duration": "0.1", "output_tokens": "2"},
    "perf --rate": {"url": "SERVER", "target": "cog-triton", "duration": "0.1", "output_tokens": "2"},
    "plan": {"measurement": "one.json", "rate": "10", "slo": "ttft=1s"},
    "serve": {"engine": "none.tar", "port": "PORT"},
    "serve --host": {"engine": "http://127.0.0.1:1/x", "port": "PORT"},
}  # fmt: skip

# What is there, with the name of a config; some of it with that of an archive, too.
FILES = {
    "empty": b"",
    "latin": "engine: m\N{LATIN SMALL LETTER O WITH DIAERESIS}ck\n".encode("latin-1"),
    "cut": b'{"engine": "mock',
    "list": b"[1]",
    "deep": b"[" * 10_000,
    "digits": b'{"engine": ' + b"9" * 5000 + b"}",
    "zeros": bytes(2048),
    "infinite": b'{"engine": Infinity, "asked": {"output_tokens": Infinity}, "steps": [{"concurrency": NaN}]}',
    "text": b"nothing that anybody expects\n",
}
NAMES = [*(f"{name}.yaml" for name in FILES), "empty.tar", "text.tar", "zeros.tar"]
PLACES = [
    "", " ", ".", "~", "-", "none", "none/none", "folder", "folder/", "text.yaml/", "text.yaml/below", "loop", "dangling",
    "fifo", "/proc/none/none", "/proc/self/mem", "/dev/null", "/dev/full", "/dev/zero", "a" * 256, "a" * 256 + ".yaml",
    "a/" * 3000, "cut.tar.gz", "half.tar", "model", *NAMES,
]  # fmt: skip
ADDRESSES = [
    "http://", "http://127.0.0.1:1", "HTTP://127.0.0.1:1/", "127.0.0.1:1", "localhost:1/x", "GARBAGE", "GARBAGE/x.yaml",
    "PAGE", "PAGE/", "http://[::1", "http://::1:1", "::1:1", "[::1]", "[::1]:1", "[::1]:1/x", "http://127.0.0.1:99999",
    "http://127.0.0.1:x", "http://127.0.0.1:\N{ARABIC-INDIC DIGIT ONE}", "http://no.such.invalid", "http://a..b",
    "http://" + "a" * 64, "http://127.0.0.1:1/%zz \t", "ftp://127.0.0.1/x", "grpc://127.0.0.1:1", "grpc://[::1", "://",
    "file:///none", "file://there/none", "file:none", "data:", "data:,", "data:;base64,x", "a/b", "a/b@c", "a/" + "b" * 300,
]  # fmt: skip
TEXTS = [",", "1,,2", "=", "A=", "[", "[1]", "{}", "\n", "\1", "\N{GRINNING FACE}", "9" * 5000, "[" * 50_000, "ttft=nans", f"ttft={'9' * 400}s"]  # fmt: skip
NUMBERS = [
    "", " ", "x", "nan", "inf", "-inf", "-1", "-0", "0", "0.0001", "0x10", "1,5", "1e999", "1000000000", "9" * 20, "9" * 400,
    "9" * 4300, "9" * 5000, "\N{ARABIC-INDIC DIGIT ONE}", "\N{GRINNING FACE}",
]  # fmt: skip


def parameters(group, words=()):
    """Every argument and option below `group`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from parameters(command, (*words, name))
            continue
        for parameter in command.params:
            if not getattr(parameter, "is_flag", False):
                place = f"{' '.join((*words, name))} {parameter.opts[0]}"
                yield pytest.param((*words, name), command, parameter, id=place)


def wrong_values(place, parameter):
    """Those for a value of its kind."""
    kind = parameter.type_descriptor
    if kind.is_choice:
        return ["", "x", ",", "a" * 300]
    if re.search(r"\b(int|float)\b", str(kind.annotation)):
        return [value for value in NUMBERS if f"{place} {value}" not in WAITS]
    elsewhere = [] if "Path" in str(kind.annotation) else ADDRESSES
    texts = TEXTS if elsewhere else []
    if slow := SLOW.get(place):
        return [*PLACES, *elsewhere, *texts][::slow]
    part = PART.get(place, 1)
    values = [*PLACES[::part], *elsewhere[::part], *texts]
    return [value for value in values if f"{place} {value}" not in WAITS]


def furnish(folder, engine):
    """The working directory of a command."""
    (folder / "folder").mkdir(parents=True)
    (folder / "model").mkdir()
    (folder / "model/config.json").write_bytes(FILES["cut"])
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("folder/none")
    os.mkfifo(folder / "fifo")
    for name in NAMES:
        (folder / name).write_bytes(FILES[Path(name).stem])
    (folder / "mock.yaml").write_text("engine: mock\n")
    (folder / "mock.tar").write_bytes(engine)
    (folder / "half.tar").write_bytes(engine[: len(engine) // 2])
    (folder / "cut.tar.gz").write_bytes(b"\x1f\x8b\x08" + bytes(20))
    (folder / "one.json").write_text(json.dumps(MEASURED))


def held(folder):
    """What shows whether anything in it has changed."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (told.st_ino, 0 if path.is_dir() else told.st_mtime_ns) for path, told in found.items()}


# What these take is no address, so that they get only a part of those: every so-manieth.
PART = {
    "acceptance --archive": 8, "acceptance --engine": 8, "acceptance --only": 8, "acceptance --report": 8, "check --gpu": 8,
    "generate --messages": 8, "init --model": 8, "instantiate --base": 8, "instantiate --dest": 8, "instantiate --env": 8,
    "perf --concurrency": 8, "perf --metrics": 8, "perf --model": 8, "perf --report": 8, "perf --slo": 8, "plan --slo": 8,
}  # fmt: skip
# These are read in a process that takes a second to start. The engine is read as by `model-repository --engine`.
SLOW = {
    "generate --prompt": 40, "generate --prompt-template": 40, "generate --stop-sequences": 40,
    "generate --system-prompt": 40, "generate engine": 16, "join address": 16, "join engine": 16, "serve --host": 16,
    "serve engine": 16,
}  # fmt: skip

# With which wrong values a command may still succeed, and why; None: with all of them.
NEW = {" ", "~", "-", "none"}  # names like others
REPLACED = {"dangling", "loop", "half.tar", "cut.tar.gz", *NAMES}
WRITTEN = NEW | REPLACED | {"/dev/null", "/dev/zero", "text.yaml/"}
RIGHT_AFTER_ALL = {
    "acceptance --archive": (None, "it is for TensorRT-LLM alone"),
    "acceptance --report": (WRITTEN, "a file that is there is replaced"),
    "acceptance --work-dir": (
        {*NEW, "", ".", "none/none", "folder", "folder/", "model"},
        "it is made; '' is Python's '.'",
    ),
    "acceptance model": (None, "the check that is run does not load it"),
    "build --output": (NEW | REPLACED, "a file that is there is replaced"),
    "check config": (
        {"none/none", "text.yaml/below", "a/b", "a/b@c", "half.tar"},
        "names on the hub, which is out of reach; of an engine.tar only the manifest is read",
    ),
    "check --gpus": ({"0", "-0"}, "a machine without"),
    "init --model": (None, "it is copied: `check` judges it"),
    "init config": (NEW, "files can have such names"),
    "inspect engine": ({"half.tar", "model"}, "only the manifest is read, which old engines lack"),
    "model-repository --out": ({*NEW, "none/none", "folder", "folder/"}, "it is made, or empty"),
    "perf --metrics": (None, "what a server does not tell is left out of the report"),
    "perf --model": (None, "the server knows which there are"),
    "perf --prompts": ({"text.yaml/", "half.tar", *NAMES}, "each line is a prompt"),
    "perf --report": (WRITTEN, "a file that is there is replaced"),
    "perf --requests": (set(NUMBERS), "a load of so many seconds does not come to so many"),
    "perf --stall": ({"1000000000"}, "nothing is abandoned"),
    "perf --tps": ({"1000000000"}, "it is only compared with what was measured"),
    "plan --load": (ZERO := {"0", "-0", "0.0001", "1000000000"}, "so many seconds"),
    "plan --pull": (ZERO, "so many seconds"),
    "plan --rate": ({"1000000000"}, "so many requests"),
    "plan --reserve": (ZERO, "so much in reserve"),
    "plan --share": ({"0", "-0", "0.0001"}, "so few must be good"),
    "plan --weights": (ZERO, "so many seconds"),
}

# Not tried: the command does what was asked for, and would not end.
WAITS = {
    "acceptance --against fifo": "a pipe is waited for, as by every program: `--against <(...)` reads one",
    "acceptance --report fifo": "as above",
    "perf --duration 1000000000": "so many seconds",
    "perf --prompts fifo": "as above",
    "perf --report fifo": "as above",
    "plan measurement fifo": "as above",
}


def is_right(place, value):
    values, _ = RIGHT_AFTER_ALL.get(place, (set(), ""))
    return values is None or value in values


@contextmanager
def garbage():
    """A port that answers, but not in HTTP."""

    def answer():
        with suppress(OSError):
            while True:
                with listener.accept()[0] as there, suppress(OSError):
                    there.settimeout(5)
                    there.recv(1 << 16)
                    there.sendall(b"\0\xff garbage\r\n" * 100)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


class Page(QuietHandler):
    """A server that has nothing to do with us."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[1]")

    do_HEAD = do_POST = do_GET


@pytest.fixture(scope="module")
def servers():
    port = free_port()
    command = [sys.executable, "-m", "tests.support.perf_server", str(port), "{}"]
    with garbage() as there, LoopbackServer(Page) as page, subprocess.Popen(command) as server:
        yield {"GARBAGE": there, "PAGE": page.url, "SERVER": f"http://127.0.0.1:{port}"}
        server.terminate()


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("engine") / "mock.tar"
    build("data:,engine: mock", path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """What is installed here, and a vLLM that only knows its version."""
    home = tmp_path_factory.mktemp("home")
    python = home / "engines/vllm/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("""#!/bin/sh\necho '{"vllm": "0.26.0"}'\n""")
    python.chmod(0o755)
    for part in (PROJECT_ROOT / ".build").iterdir():
        if part.name != "engines":
            (home / part.name).symlink_to(part)
    return home


CODED = re.compile(r"^(?:.*: error: )?(E\d{4} \w+: .*)", re.MULTILINE)
PYTHONS_WORDS = re.compile(
    r"Traceback|\[Errno|Expecting |object at 0x|<class |codec|invalid literal|embedded null|input_value|surrogate|"
    rf"\w+Error\b|{re.escape(str(PROJECT_ROOT))}/(?:builder|cli|runner|shared)/"
)


def faults(place, value, done):
    """What is wrong with how it ended."""
    coded = [from_text(text) for text in CODED.findall(done.text)]
    match done.status:
        case 0 if is_right(place, value):
            pass
        case 1 if not coded:
            yield "it says nothing with a code"
        case 1 if len(coded) > 1 and not place.startswith("check "):
            yield "it says more than one thing"
        case 1 if None in coded or any(isinstance(one, GenericError) for one in coded):
            yield "it is an unknown error"
        case 2 if "Usage: " not in done.text:
            yield "it is no usage error"
        case 1 | 2:
            pass
        case None:
            yield "it does not end"
        case status:
            yield f"it ends with status {status}"
    if found := PYTHONS_WORDS.search(done.text):
        yield f"it says {found[0]}"


def arguments(place, words, command, parameter, value, named):
    right = {one.name: "1" for one in command.params if one.required}
    right |= RIGHT.get(place) or RIGHT.get(" ".join(words), {})
    given = {name: named.get(text, text) for name, text in right.items()} | {parameter.name: value}
    kinds = {one.name: one for one in command.params}
    options = [
        f"{kinds[name].opts[0]}={text}"
        for name, text in given.items()
        if kinds[name].param_type_name == "option"
    ]
    places = [
        given[name] for name, one in kinds.items() if one.param_type_name == "argument" and name in given
    ]
    return [*words, *options, "--", *places]


def surroundings(home, temporary):
    """The environment of a command."""
    kept = {"PATH", "LANG", "LD_LIBRARY_PATH"}
    return {name: text for name, text in os.environ.items() if name in kept} | {
        "COG_TRITON_HOME": str(home),
        "COLUMNS": "1000",
        "HOME": str(temporary),
        "HOSTS_SECRET": "0" * 16,
        "TMPDIR": str(temporary),
        # The process that this one is forked from has taken its own HOME for the default.
        "WEIGHTS_CACHE": str(temporary / "weights"),
    }


@pytest.mark.parametrize(("words", "command", "parameter"), [*parameters(get_command(app))])
def test_a_wrong_value_is_told_in_our_words(words, command, parameter, servers, engine, home, tmp_path):
    folders = SimpleQueue()
    place = f"{' '.join(words)} {parameter.opts[0]}"
    numbers = count()

    def made():
        folder = tmp_path / f"{next(numbers)}"
        furnish(folder, engine)
        return folder, held(folder)

    def told(value):
        try:
            folder, before = folders.get_nowait()
        except Empty:
            folder, before = made()
        output = tmp_path / f"{next(numbers)}.txt"
        named = servers | {"PORT": str(free_port())}
        for name, address in named.items():
            value = value.replace(name, address)
        environment = surroundings(home, tmp_path) | {"HF_ENDPOINT": servers["PAGE"]}
        done = run(
            arguments(place, words, command, parameter, value, named), folder, output, environment, SECONDS
        )
        found = list(faults(place, value, done))
        if held(folder) == before:
            folders.put((folder, before))
        elif done.status != 0:
            found.append("it has changed its folder")
        return [f"{value[:60]!r}: {fault}: {done.text[-1000:]}" for fault in found]

    with ThreadPoolExecutor(4) as pool:
        found = [fault for faults in pool.map(told, wrong_values(place, parameter)) for fault in faults]
    assert not found, "\n".join(found)


# What else than the settings a preparation reads, and what only a server reads of them.
VARIABLES = {"COG_TRITON_HOME": str, "LOG_LEVEL": str} | {
    field.alias: field.annotation for field in Settings.model_fields.values()
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_wrong_setting_is_told_in_our_words(variable, engine, home, tmp_path):
    """Many are right here, where no server is started that would read the file or use the address."""
    furnish(tmp_path / "here", engine)
    kind = str(VARIABLES[variable])
    is_number = bool(re.search(r"\b(int|float)\b", kind))
    values = NUMBERS[::2] if is_number else [*PLACES[1::4], *ADDRESSES[::6], *TEXTS[::3]]
    if variable in ("COG_TRITON_CONFIG", "COG_TRITON_HOME", "WEIGHTS_CACHE"):
        values = PLACES

    def told(number):
        environment = surroundings(home, tmp_path) | {variable: values[number]}
        command = ["model-repository", "--engine=mock.tar", f"--out=new{number}"]
        done = run(command, tmp_path / "here", tmp_path / f"{number}.txt", environment, SECONDS)
        if done.status == 0:
            return []
        place = f"{variable}={values[number][:60]!r}"
        return [f"{place}: {fault}: {done.text[-1000:]}" for fault in faults(place, "", done)]

    with ThreadPoolExecutor(4) as pool:
        found = [fault for faults in pool.map(told, range(len(values))) for fault in faults]
    assert not found, "\n".join(found)
