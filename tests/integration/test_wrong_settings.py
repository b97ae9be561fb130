"""Every setting of the runner, as its class lists them, with wrong values, at a started server.

One at a time is wrong. Whatever it is, the server becomes ready and answers a prediction, or it ends soon with one
coded error that names the setting; it shows no secret, and leaves no process behind.
"""

from __future__ import annotations

import os
import re
import typing
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from pydantic import SecretStr

from builder.pipeline import build
from runner.settings import Settings
from runner.triton.address import Address
from shared.cog.server import free_port
from shared.errors import GenericError, from_text
from shared.layout import PROJECT_ROOT
from tests.support.serving import Start, serve

SECONDS = 60  # none should take as long, on a busy machine
PEM = Path(__file__).parents[1] / "support/loopback.pem"
SECRET = "s3cret-Of-This-Test"

# The bytes of a variable are Python's text with surrogates.
NO_UTF8 = "\udcff"
TEXTS = [
    " ", "\n", "x\r\n", "\t x ", "9" * 5000, f"x{NO_UTF8}", "\1", "\N{GRINNING FACE}", "-1", "nan", "{",
    "{}", "[1]", ",", "=", "%s{0}", "../..", "'", "UPPER",
]  # fmt: skip
SWITCHES = [" ", "maybe", "TRUE", "true\n", "2", "-1", "nan", "9" * 5000, f"true{NO_UTF8}", "[true]"]
NUMBERS = [
    " ", "\n", "x", "nan", "inf", "-inf", "-1", "-0", "0", "1\n", " 1 ", "0.0001", "1.0", "0x10", "1_0",
    "1,5", "1e999", "1000000000", "9" * 20, "9" * 400, "9" * 5000, "\N{ARABIC-INDIC DIGIT ONE}",
    f"1{NO_UTF8}", "true",
]  # fmt: skip
PLACES = [
    " ", "\n", ".", "~", "-", "none", "none/none", "folder", "folder/", "text", "text/", "text/below",
    "text\n", "loop", "dangling", "fifo", "empty", "bytes", "sparse", "locked", "sealed/text", "/",
    "/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem", "/proc/none/none", "a" * 256, "a/" * 3000,
    "9" * 5000, NO_UTF8, "TEXT", "half.pem", "certificate.pem", "key.pem", "other.pem", "locked.pem",
]  # fmt: skip
ADDRESSES = [
    " ", "\n", "x", "127.0.0.1", "127.0.0.1:", ":1", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:-1",
    "127.0.0.1:x", "127.0.0.1:1.5", "127.0.0.1:\N{ARABIC-INDIC DIGIT ONE}", "::1", "::1:FREE", "[::1",
    "[::1]", "[zz]:FREE", "a..b:FREE", "a" * 64 + ":FREE", "no.such.invalid:FREE", "192.0.2.1:FREE",
    "http://127.0.0.1:FREE", "127.0.0.1:FREE\n", f"{NO_UTF8}:FREE", "9" * 5000, "9" * 5000 + ":FREE",
    "999.1.1.1:FREE", " :FREE", "%s:FREE", "[::1]%lo:FREE", "\N{GRINNING FACE}:FREE",
    "LOCALHOST:TAKEN", "[::1]:FREE", "127.0.0.1:TAKEN",
]  # fmt: skip
URLS = [
    "http://", "http://127.0.0.1:1", "127.0.0.1:1", "HTTP://127.0.0.1:1/", "http://[::1", "http://::1:1",
    "http://127.0.0.1:99999", "http://127.0.0.1:x", "http://a..b", "ftp://127.0.0.1/x", "://",
    "file:///none", "file://there/none", "data:", "data:,", "data:;base64,x", "data:,{", "data:,[1]",
    "data:,%ff", "a/b", "a/b@c", "a/" + "b" * 300, f"http://u:{SECRET}@127.0.0.1:x/",
    f"http://u:{SECRET}@127.0.0.1:1/x?y={SECRET}",
]  # fmt: skip
SECRETS = [
    f"{SECRET}{NO_UTF8}", f"{SECRET} and more and {SECRET}", f"{SECRET}\n", f"{SECRET}\N{GRINNING FACE}",
    SECRET * 400, f" {SECRET}", f"{SECRET},,{SECRET}", f"a {SECRET}\1", " ", "\n", ",", "#", NO_UTF8,
    "9" * 5000,
]  # fmt: skip
WORDS = ["x", " front", "FRONT", "front\n", "COG", f"front{NO_UTF8}", "9" * 5000]

# The settings that another does not work without, or that let it be read.
WITH = {
    "TLS_CERTIFICATE": {"TLS_KEY": "key.pem"},
    "TLS_KEY": {"TLS_CERTIFICATE": "certificate.pem"},
    "WEBHOOK_AUTH_TOKEN": {"WEBHOOK_ALLOW": "http://127.0.0.1:1"},
    "HOSTS_SECRET": {"HOSTS_ADDRESS": "127.0.0.1:1"},
    "HOSTS_SECRET_FILE": {"HOSTS_ADDRESS": "127.0.0.1:1"},
}
# Those that no other server than the images' takes from the environment.
OF_IMAGES = {"COG_WEIGHTS", "ENGINE_DIR", "PORT"}
OTHERS = {"COG_TRITON_HOME": Path, "LOG_LEVEL": str, "PORT": int, "TMPDIR": Path}


def parts(annotation):
    """The types in an annotation."""
    if typing.get_origin(annotation) is typing.Literal or not (inner := typing.get_args(annotation)):
        return {annotation}
    return set().union(*map(parts, inner))


def kind(annotation, description=""):
    """The wrong values for a setting, and every how-manieth of them it gets: the next setting gets others."""
    found = parts(annotation)
    if bool in found:
        return SWITCHES, 5
    if found & {int, float}:
        return NUMBERS, 8
    if SecretStr in found:
        return SECRETS, 2
    if Path in found:
        return PLACES, 5
    if Address in found:
        return ADDRESSES, 3
    if str not in found:
        return WORDS, 1
    if re.search(r"\b(path|file)\b", description):
        return TEXTS + PLACES + URLS, 3
    return TEXTS + URLS, 6


def settings():
    """Each setting, with its wrong values."""
    fields = Settings.model_fields.values()
    kinds = {str(one.alias): kind(one.annotation, str(one.description)) for one in fields}
    kinds |= {name: kind(annotation) for name, annotation in OTHERS.items()}
    turns = Counter()
    for name, (values, every) in kinds.items():
        turn = turns[len(values)]
        turns[len(values)] += 1
        # For root, "/" is a right one, and its engine would stay there.
        wrong = [value for value in values[turn % every :: every] if (name, value) != ("WEIGHTS_CACHE", "/")]
        yield pytest.param(name, wrong, id=name)
    assert all(turns[len(values)] >= every for values, every in kinds.values())  # each value has its turn


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("engine") / "mock.tar"
    build("data:,engine: mock", path)
    return path


def furnish(folder, engine):
    """The working directory of a server."""
    (folder / "folder").mkdir(parents=True)
    (folder / "text").write_text("nothing that anybody expects\n")
    (folder / "empty").touch()
    (folder / "bytes").write_bytes(b"\xff\0\xfe" * 100)
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("folder/none")
    os.mkfifo(folder / "fifo")
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    whole = PEM.read_text()
    key, certificate = whole[: whole.index("-----BEGIN CERT")], whole[whole.index("-----BEGIN CERT") :]
    (folder / "key.pem").write_text(key)
    (folder / "certificate.pem").write_text(certificate)
    (folder / "half.pem").write_text(certificate[: len(certificate) // 2])
    (folder / "other.pem").write_text(key[:-60] + "AAAA" + key[-56:])
    for name in ("locked", "locked.pem"):
        (folder / name).write_text(key)
        (folder / name).chmod(0)
    (folder / "sealed").mkdir()
    (folder / "sealed/text").touch()
    (folder / "sealed").chmod(0)
    (folder / "mock.tar").symlink_to(engine)


CODED = re.compile(r"(E\d{4} [A-Z]\w+: .*)")
# These say which part, port, engine or folder it is about.
NAMES_NO_SETTING = {"E4000", "E4003", "E4100", "E4103", "E4200", "E4201", "E4203"}
PYTHONS_WORDS = re.compile(
    r"Traceback|\[Errno|Expecting |object at 0x|<class |codec|invalid literal|embedded null|input_value|surrogate|raw data|"
    rf"\b(?!CogTriton)\w+Error\b|Exception|{re.escape(str(PROJECT_ROOT))}/(?:builder|cli|runner|shared)/"
)


def faults(name, done):
    """What is wrong with how it ended."""
    text = done.text
    said = set(CODED.findall(text))
    codes = {found[:5] for found in said}
    coded = [from_text(one) for one in said]
    if done.left:
        yield f"it leaves {done.left} processes behind"
    if done.status is None:
        yield "it does not end"
    elif done.answer is not None:
        if '"status":"succeeded"' not in done.answer and name not in done.answer:
            yield f"it answers {done.answer[:300]}"
        if done.status != 0:
            yield f"it ends with status {done.status}"
    elif done.status != 1:
        yield f"it ends with status {done.status}"
    elif not coded:
        yield "it says nothing with a code"
    elif len(coded) > 1:
        yield "it says more than one thing"
    elif name not in text and not codes & NAMES_NO_SETTING:
        yield "it does not name the setting"
    if None in coded or any(isinstance(one, GenericError) for one in coded):
        yield "it is an unknown error"
    if found := PYTHONS_WORDS.search(text):
        yield f"it says {found[0]}"
    if SECRET in text:
        yield "it shows a secret"


@pytest.mark.parametrize(("name", "values"), [*settings()])
def test_a_wrong_setting_is_told_in_our_words(name, values, engine, tmp_path):
    furnish(tmp_path / "here", engine)
    numbers = count()

    def told(value):
        number, port = next(numbers), free_port()
        value = value.replace("TAKEN", str(port)).replace("FREE", str(free_port()))
        place = tmp_path / f"{number}"
        place.mkdir()
        environment = dict.fromkeys(("HOME", "TMPDIR", "WEIGHTS_CACHE", "COMPILE_CACHE"), str(place))
        environment |= {"PATH": os.environ["PATH"], "COG_TRITON_HOME": str(PROJECT_ROOT / ".build")}
        arguments = ["serve", "mock.tar", f"--port={port}"]
        if name in OF_IMAGES:
            arguments = []
            environment |= {"PORT": str(port), "COG_WEIGHTS": "" if name == "ENGINE_DIR" else str(engine)}
        environment |= WITH.get(name, {}) | {name: value}
        start = Start(arguments, tmp_path / "here", tmp_path / f"{number}.txt", environment, port)
        done = serve(start, SECONDS)
        return [f"{name}={value[:60]!r}: {fault}: {done.text[-1500:]}" for fault in faults(name, done)]

    with ThreadPoolExecutor(3) as pool:
        found = [fault for faults in pool.map(told, values) for fault in faults]
    assert not found, "\n".join(found)
