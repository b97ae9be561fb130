"""The runner's settings: environment variables, read once at set-up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared.errors import SettingInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping


class Settings(BaseModel):
    """One field per environment variable (its alias); an empty variable counts as unset."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    weights: str | None = Field(
        None,
        alias="COG_WEIGHTS",
        description="URL or path of an engine.tar, or a directory that holds one unpacked",
    )
    engine_dir: Path | None = Field(
        None,
        alias="ENGINE_DIR",
        description="directory of an unpacked engine; used when COG_WEIGHTS is not set",
    )
    weights_cache: Path = Field(
        Path.home() / ".cache/cog-triton/weights",
        alias="WEIGHTS_CACHE",
        description="where downloaded engines are kept for the next start",
    )
    max_engine_bytes: int = Field(
        1 << 40, gt=0, alias="MAX_ENGINE_BYTES", description="an archive that unpacks to more is refused"
    )
    system_prompt: str | None = Field(
        None, alias="SYSTEM_PROMPT", description="system prompt of predictions that send none"
    )
    prompt_template: str | None = Field(
        None, alias="PROMPT_TEMPLATE", description="prompt template of predictions that send none"
    )
    stop_sequences: str | None = Field(
        None, alias="STOP_SEQUENCES", description="stop sequences of predictions that send none"
    )
    end_id: int | None = Field(
        None,
        ge=-1,
        alias="END_ID",
        description="the token that ends a text, instead of the model's own; -1: none",
    )
    log_performance_metrics: bool = Field(
        False, alias="LOG_PERFORMANCE_METRICS", description="log the speed of every prediction"
    )
    engine_start_timeout: float = Field(
        600, gt=0, alias="ENGINE_START_TIMEOUT", description="seconds that an engine may take to load"
    )
    response_timeout: float = Field(
        120,
        gt=0,
        alias="RESPONSE_TIMEOUT",
        description="seconds without a token after which a prediction fails",
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read the variables. Raises E4002 for the first that is not valid."""
        try:
            return cls.model_validate({name: value for name, value in environment.items() if value})
        except ValidationError as invalid:
            first = invalid.errors()[0]
            raise SettingInvalid(setting=first["loc"][0], value=first["input"], reason=first["msg"]) from None
