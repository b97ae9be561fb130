"""The builder's Cog predictor: a config in, engine.tar out.

`BUILDER_OUTPUT_DIR` is the directory that engine.tar is written to (default /src); `HF_TOKEN` is the token
for builds that send none.
"""

from __future__ import annotations

import os
from typing import ClassVar

import cog

from builder.pipeline import build
from shared.cog.checkout import make_parts
from shared.logs import configure_logging
from shared.progress import stderr_progress


class Builder(cog.BaseRunner):
    """Builds one engine at a time."""

    streams: ClassVar[bool] = False

    def setup(self) -> None:
        """Nothing is loaded."""
        configure_logging()
        make_parts()

    def run(
        self,
        config: str = cog.Input(description="The build config: an http(s) or data: URL, or a path here."),
        hf_token: cog.Secret | None = cog.Input(
            description="Hugging Face token for a private or gated model; default: HF_TOKEN.",
            default=None,
        ),
    ) -> cog.Path:
        """Build the engine. Raises a build's errors (E3xxx)."""
        output = cog.Path(os.environ.get("BUILDER_OUTPUT_DIR") or "/src") / "engine.tar"
        token = hf_token.get_secret_value() if hf_token else os.environ.get("HF_TOKEN")
        build(config, output, hf_token=token, progress=stderr_progress())
        return output
