"""What the bodies of OpenAI's API may hold, and what each parameter asks for.

Source of names, ranges and defaults: OpenAI's API reference for `/v1/completions` and `/v1/chat/completions`.
Not from OpenAI are `top_k`, `min_p`, `min_tokens`, `repetition_penalty`, `length_penalty`, `ignore_eos`,
`chat_template_kwargs`, `structured_outputs`, `guided_...`, `cache_salt`, `priority` and, of a stream,
`continuous_usage_stats`: they have the names that other servers of this API use.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from runner.protocol.engine import MAX_TOKENS
from runner.text.messages import MAX_MESSAGES

MAX_CHOICES = 128
"""Texts that one request may ask for, for all its prompts together."""
MAX_DETOKENIZED = 1 << 20
"""Tokens that one request may have turned into text."""
_MAX_KEYS = 256
_MAX_BIASES = 1 << 16
_MAX_DIGITS = 20  # Python refuses to read thousands
_REASONING = "a model's reasoning is not separated from its text"
_NO_TEXT = ("image_url", "input_audio", "file")
_TEXT = ("text", "refusal")
"""Types of parts that have a text, under the same name."""
# What clients of vLLM may send besides, with values that ask for nothing.
_OF_VLLM: dict[str, tuple[str, tuple[Any, ...]]] = {
    "allowed_token_ids": ("any token may be written", (None,)),
    "bad_words": ("no words are forbidden", (None, [])),
    "include_stop_str_in_output": ("a stop sequence is not part of the text", (None, False)),
    "prompt_logprobs": ("prompts have no log probabilities", (None,)),
    "return_token_ids": ("answers have no token ids", (None, False)),
    "return_tokens_as_token_ids": ("answers have no token ids", (None, False)),
    "skip_special_tokens": ("special tokens are not part of the text", (None, True)),
    "spaces_between_special_tokens": ("special tokens are not part of the text", (None, True)),
    "stop_token_ids": ("a text ends at the model's own end ids", (None, [])),
    "truncate_prompt_tokens": ("prompts are not cut", (None,)),
    "use_beam_search": ("there is no beam search", (None, False)),
}
_UNUSED = {"tool_choice": "tools", "function_call": "functions"}
"""By the choice that forbids them."""
_SOME_TEXTS = "must be text or a list of texts"
_SOME_PROMPTS = "must be text, token ids, or a list of either"


def _texts(value: Any) -> Any:
    """One text or several, as several."""
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(_SOME_TEXTS)
    return tuple(texts)


def _prompts(value: Any) -> Any:
    """One prompt or several, as several; each is text or token ids."""
    prompts = [value] if isinstance(value, str) or _is_ids(value) else value
    if not isinstance(prompts, list) or not prompts:
        raise ValueError(_SOME_PROMPTS)
    if len(prompts) > MAX_CHOICES:
        raise ValueError(f"may have at most {MAX_CHOICES} prompts")
    if not all(isinstance(prompt, str) for prompt in prompts):
        if not all(map(_is_ids, prompts)):
            raise ValueError(_SOME_PROMPTS)
        if not all(min(ids) >= 0 and max(ids) <= MAX_TOKENS for ids in prompts):
            raise ValueError(f"may only have token ids from 0 to {MAX_TOKENS}")
        return [array("i", ids) for ids in prompts]
    return prompts


def _tokens(value: Any) -> Any:
    """Token ids."""
    if not isinstance(value, list):
        raise ValueError("must be a list")  # noqa: TRY004  as above
    if len(value) > MAX_DETOKENIZED:
        raise ValueError(f"may have at most {MAX_DETOKENIZED} items")
    if value and not (_is_ids(value) and min(value) >= 0 and max(value) <= MAX_TOKENS):
        raise ValueError(f"may only have token ids from 0 to {MAX_TOKENS}")
    return array("i", value)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) == {int}


def _biases(value: Any) -> Any:
    """JSON has only texts as keys."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(key.isascii() and key.isdecimal() for key in value):
        raise ValueError("must be a mapping from token ids to numbers")
    if len(value) > _MAX_BIASES or any(len(key) > _MAX_DIGITS or int(key) > MAX_TOKENS for key in value):
        raise ValueError(f"may have at most {_MAX_BIASES} token ids, of at most {MAX_TOKENS}")
    return {int(key): bias for key, bias in value.items()}


def _content(value: Any) -> Any:
    """The text of a message: OpenAI also allows it in parts."""
    if not isinstance(value, list):
        return value
    texts = []
    for number, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in _NO_TEXT:
            why = "images, sound and files are not supported"
            raise PydanticCustomError("not_done", "{why}", {"name": number, "why": why})
        text = part.get(kind) if kind in _TEXT else None
        if not isinstance(text, str):
            wanted = '{"type": "text", "text": "..."}'
            raise ValueError(f"may only have parts like {wanted}")  # noqa: TRY004  as above
        texts.append(text)
    return "\n".join(texts)


def _schema_or(kind: type, word: str) -> BeforeValidator:
    """Before the union is tried: one problem, in the parameter itself, instead of one per member."""

    def checked(value: Any) -> Any:
        if not isinstance(value, dict | kind | None):
            raise ValueError(f"must be a schema or {word}")  # noqa: TRY004  pydantic turns only ValueErrors into problems
        return value

    return BeforeValidator(checked)


def _unless_false(value: Any) -> Any:
    """Clients that know only chats say so."""
    return None if value is False else value


Prompt = str | Sequence[int]
_Bias = Annotated[float, Field(ge=-100, le=100)]
_Texts = Annotated[tuple[str, ...], PlainValidator(_texts)]
_Prompts = Annotated[list[Prompt], PlainValidator(_prompts)]
_Content = Annotated[str, BeforeValidator(_content)]
_Penalty = Annotated[float | None, Field(ge=-2, le=2)]


class Part(BaseModel):
    """`not_done`: what OpenAI offers but is not done here: why, and the values that ask for nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    not_done: ClassVar[dict[str, tuple[str, tuple[Any, ...]]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_not_done(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if len(value) > _MAX_KEYS:
            raise ValueError(f"may have at most {_MAX_KEYS} parameters")
        for name, (why, neutral) in cls.not_done.items():
            if name in value and value[name] not in neutral:
                raise PydanticCustomError("not_done", "{why}", {"name": name, "why": why})
        return {name: one for name, one in value.items() if name not in cls.not_done}


class StreamOptions(Part):
    """What the events of a stream look like."""

    not_done = {"include_obfuscation": ("events are not padded", (None, False))}

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None  # usage in each event, of its text so far


class Message(Part):
    """One turn of a conversation. A `developer` is what a `system` was to older models, and still is to
    templates. Other keys, such as `id` and `cache_control`, are ignored.
    """

    model_config = ConfigDict(extra="ignore")
    not_done = {
        "audio": ("there is only text", (None,)),
        "tool_calls": ("tools are not called", (None, [])),
        "function_call": ("functions are not called", (None,)),
        "annotations": ("nothing is searched for", (None, [])),
        "reasoning": (_REASONING, (None, "")),
        "reasoning_content": (_REASONING, (None, "")),
    }

    role: Literal["system", "developer", "user", "assistant"]
    content: _Content
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_refusal(cls, value: Any) -> Any:
        """What a model refused with instead of an answer is its text."""
        if isinstance(value, dict) and value.get("content") is None and isinstance(value.get("refusal"), str):
            return value | {"content": value["refusal"]}
        return value

    def for_template(self) -> dict[str, str]:
        """In the form that chat templates expect."""
        told = {"role": "system" if self.role == "developer" else self.role, "content": self.content}
        return told if self.name is None else told | {"name": self.name}


class JsonSchema(Part):
    """The schema of a `ResponseFormat`; it is always followed strictly."""

    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | bool | None, _schema_or(bool, "true")] = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Part):
    """What constrains a text, in OpenAI's words."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Named(Part):
    """A body with the name of a model. None is "not sent", as null is to OpenAI."""

    model: str | None = None


class Parameters(Named):
    """What both kinds of request for texts share."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    max_tokens: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    stop: _Texts = ()
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    frequency_penalty: _Penalty = None
    presence_penalty: _Penalty = None
    logit_bias: Annotated[dict[int, _Bias], BeforeValidator(_biases)] = {}
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    min_tokens: int | None = Field(None, ge=0)
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    length_penalty: float | None = Field(None, ge=0, le=100)
    ignore_eos: bool | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: Annotated[dict[str, Any] | str | None, _schema_or(str, "its text")] = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_decoding_backend: str | None = None  # the engine has one
    cache_salt: str | None = Field(None, min_length=1, max_length=256)
    priority: int | None = Field(None, ge=0, le=MAX_TOKENS)
    user: str | None = None  # the caller's own label, which asks for nothing


class CompletionParameters(Parameters):
    """The body of `/v1/completions`."""

    not_done = _OF_VLLM | {
        "add_special_tokens": ("a prompt begins as the model expects", (None, True)),
        "echo": ("the prompt is not repeated", (None, False)),
        "suffix": ("text is only added at the end", (None, "")),
    }

    prompt: _Prompts
    max_tokens: int | None = Field(None, ge=0)
    best_of: int | None = None
    logprobs: Annotated[int | None, Field(ge=0, le=5), BeforeValidator(_unless_false)] = None


class ChatParameters(Parameters):
    """The body of `/v1/chat/completions`."""

    not_done = _OF_VLLM | {
        "add_generation_prompt": ("it goes into chat_template_kwargs", (None, True)),
        "add_special_tokens": ("the chat template adds them", (None, False)),
        "chat_template": ("the model has its own", (None,)),
        "continue_final_message": ("an answer is a turn of its own", (None, False)),
        "documents": ("they go into chat_template_kwargs", (None, [])),
        "echo": ("the last message is not repeated", (None, False)),
        "tools": ("tools are not called", (None, [])),
        "tool_choice": ("tools are not called", (None, "none", "auto")),
        "parallel_tool_calls": ("tools are not called", (None, True, False)),
        "functions": ("functions are not called", (None, [])),
        "function_call": ("functions are not called", (None, "none", "auto")),
        "modalities": ("there is only text", (None, ["text"])),
        "audio": ("there is only text", (None,)),
        "prediction": ("predicted outputs are not used", (None,)),
        "include_reasoning": (_REASONING, (None, True)),
        "reasoning_effort": ("the model thinks as its template says", (None,)),
        "verbosity": ("the model writes as its template says", (None, "medium")),
        "service_tier": ("there is one tier", (None, "auto", "default")),
        "store": ("nothing is stored", (None, False)),
        "metadata": ("nothing is stored", (None, {})),
        "web_search_options": ("nothing is searched for", (None,)),
        "moderation": ("nothing is moderated", (None,)),
        "prompt_cache_retention": ("the engine decides what it keeps", (None, "in_memory")),
        "prompt_cache_options": ("the engine decides what it keeps", (None,)),
    }

    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    chat_template_kwargs: dict[str, Any] | None = None
    safety_identifier: str | None = None  # labels, as `user`
    prompt_cache_key: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_unused_tools(cls, value: Any) -> Any:
        """Tools that must not be called are not told to the model."""
        if not isinstance(value, dict):
            return value
        unused = {what for choice, what in _UNUSED.items() if value.get(choice) == "none"}
        return {name: one for name, one in value.items() if name not in unused} if unused else value


class TokenizeParameters(Named):
    """The body of `/tokenize`: a prompt or messages."""

    not_done = {
        "chat_template": ("the model has its own", (None,)),
        "continue_final_message": ("an answer is a turn of its own", (None, False)),
        "return_token_strs": ("answers have token ids alone", (None, False)),
        "tools": ("tools are not called", (None, [])),
    }

    prompt: str | None = None
    messages: list[Message] | None = Field(None, min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeParameters(Named):
    """The body of `/detokenize`."""

    tokens: Annotated[Any, PlainValidator(_tokens)]
