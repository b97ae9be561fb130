"""What a prediction asks for, in no API's form: each API checks types and turns its own into this."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.protocol.engine import SamplingParameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.protocol.engine import StructuredOutput
    from runner.text.messages import Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One text. None is "not sent": then the runner's defaults apply."""

    prompt: str | Sequence[int] | None = None
    """Text for the template, or the tokens themselves."""
    conversation: Conversation | None = None
    """Instead of a prompt: for the model's chat template."""
    system_prompt: str | None = None
    prompt_template: str | None = None
    """With {prompt} and {system_prompt}; "{prompt}" leaves a prompt unchanged."""
    template_arguments: bytes = b"{}"
    """Further variables for the chat template, as JSON."""
    max_tokens: int | None = None
    """None: as many as there is room for."""
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    """As sent: a temperature of 0 is still 0, and a seed is chosen later."""
    stop_sequences: Sequence[str] | None = None
    ignore_end: bool = False
    """Continue past the tokens that end a text."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    log_probs: int | None = None
    """How many of the likeliest tokens to report beside each; None: nothing is reported."""
    structured_output: StructuredOutput | None = None
    """What constrains the text."""
    lora: str | None = None
    """The name of an adapter."""
    cache_salt: str | None = None
    """What the engine keeps of prompts is shared among requests with the same salt."""
    priority: int | None = None
    """Lower is earlier; None: 0, the earliest."""
    log_performance: bool = False
