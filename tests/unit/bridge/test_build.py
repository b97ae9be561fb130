"""What the bridge's sources and the Python modules share."""

from __future__ import annotations

import re

from runner.protocol.frames import FrameType
from shared.errors import EngineGaveUp, EngineNotReady, MalformedRequest
from tools.docs.bridge_constants import header


def defined(name: str) -> str:
    (value,) = re.findall(rf"^#define {name} (.*)$", header(), re.MULTILINE)
    return value


def printed(name: str, *values: object) -> str:
    return defined(name).strip('"').replace("\\\\", "\\").replace('\\"', '"') % values


def test_numbers_are_those_of_the_modules():
    assert int(defined("FRAME_STEP")) == FrameType.STEP


def test_error_texts_are_those_of_the_classes():
    assert printed("E2401_ENGINE_NOT_READY") == str(EngineNotReady())
    assert printed("E2402_ENGINE_GAVE_UP") == str(EngineGaveUp())
    assert printed("E2403_MALFORMED_REQUEST", "x") == str(MalformedRequest(reason="x"))
