"""The runner as Cog sees it: the inputs of a prediction, and set-up. runner/cog/worker.py does the work."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cog import BaseRunner, ConcatenateIterator, Input, concurrent, streaming

from runner.cog import cancellation
from runner.cog.prediction import current_prediction
from runner.cog.release import check_release
from runner.cog.worker import Worker
from runner.lifecycle.control import CONTROL
from runner.lifecycle.lifeline import end_with_parent
from runner.prediction.inputs import Inputs
from runner.settings import Settings
from shared.cog.checkout import make_parts
from shared.logs import configure_logging

if TYPE_CHECKING:
    from typing import ClassVar


class Runner(BaseRunner):
    """Streams the text that the engine generates for a prompt."""

    streams: ClassVar[bool] = True

    def setup(self) -> None:
        """Load the engine. A `CogTritonError` fails the set-up; its text is in /health-check."""
        configure_logging()
        check_release()
        if CONTROL not in os.environ:
            make_parts()
        cancellation.install()
        end_with_parent()
        self.worker = Worker(Settings.from_environment(os.environ))

    def healthcheck(self) -> bool:
        """Whether predictions can be answered now."""
        return self.worker.is_healthy()

    # Cog iterates the returned generator in a thread of its own; it would collect an async generator to its
    # end before sending anything.
    @streaming
    @concurrent(max=128)
    async def run(
        self,
        prompt: str | None = Input(default=None, description="Prompt to send to the model."),
        system_prompt: str | None = Input(
            default=None,
            description="System prompt: for the {system_prompt} of the template; with messages, that of the"
            " conversation. Default: SYSTEM_PROMPT, else that of the engine's config.",
        ),
        max_tokens: int = Input(default=512, ge=1, description="The most tokens to generate."),
        min_tokens: int | None = Input(
            default=None, ge=-1, description="The fewest tokens to generate; -1: no minimum."
        ),
        temperature: float = Input(
            default=0.7, ge=0, le=5, description="Randomness of the choice; 0: always the likeliest token."
        ),
        top_p: float = Input(
            default=0.95,
            ge=0,
            le=1,
            description="Choose among the likeliest tokens with this total probability.",
        ),
        top_k: int = Input(
            default=0,
            ge=-1,
            description="Choose among this many of the likeliest tokens; 0 or -1: among all.",
        ),
        stop_sequences: str | None = Input(
            default=None,
            description="Texts before which the answer ends: separated by commas (spaces count), or a JSON"
            " list of strings.",
        ),
        length_penalty: float = Input(
            default=1.0,
            ge=0,
            le=5,
            description="It weighs beams, of which there are none: the engines that run a model refuse other"
            " values than 0 and 1.",
        ),
        presence_penalty: float = Input(default=0.0, description="Penalty for tokens that occurred before."),
        seed: int | None = Input(
            default=None,
            description="Seed of the random choice. Without one, engines for which a seed costs nothing get "
            "a random one, which the metric `seed` reports.",
        ),
        structured_output: str | None = Input(
            default=None,
            description="What constrains the answer: a JSON object with one of json (a schema),"
            " json_object (true), regex, choice (a list) and grammar.",
        ),
        lora: str | None = Input(default=None, description="Name of the LoRA adapter to use."),
        prompt_template: str | None = Input(
            default=None,
            description="Text with {prompt} and {system_prompt}. Default: PROMPT_TEMPLATE, else that of the"
            ' engine\'s config, else "{prompt}".',
        ),
        messages: str | None = Input(
            default=None,
            description="A conversation for the chat template instead of a prompt: a JSON list of "
            "objects with role and content.",
        ),
        log_performance_metrics: bool = Input(
            default=False, description="Log the speed of this prediction, if it succeeds."
        ),
        max_new_tokens: int | None = Input(
            default=None, ge=1, deprecated=True, description="Old name of max_tokens."
        ),
        min_new_tokens: int | None = Input(
            default=None, ge=-1, deprecated=True, description="Old name of min_tokens."
        ),
    ) -> ConcatenateIterator[str]:
        """Stream the answer to a prompt."""
        inputs = Inputs(
            prompt=prompt,
            messages=messages,
            system_prompt=system_prompt,
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            stop_sequences=stop_sequences,
            length_penalty=length_penalty,
            presence_penalty=presence_penalty,
            seed=seed,
            structured_output=structured_output,
            lora=lora,
            prompt_template=prompt_template,
            log_performance_metrics=log_performance_metrics,
            max_new_tokens=max_new_tokens,
            min_new_tokens=min_new_tokens,
        )
        return self.worker.stream(inputs, current_prediction(self.scope.record_metric))
