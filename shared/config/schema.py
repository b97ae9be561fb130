"""The JSON Schema of build configs, for editors and other programs."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from .models import BuildConfig
from .old import CogTRTLLMConfig, OfficialConfig


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a build config."""
    forms = Annotated[BuildConfig, Field(discriminator="engine")] | CogTRTLLMConfig | OfficialConfig
    made = TypeAdapter[Any](forms).json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "cog-triton build config"}
    return head | made


def rendered_schema() -> str:
    """Its text."""
    return json.dumps(schema(), indent=2) + "\n"
