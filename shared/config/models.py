"""The build config: one pydantic model per engine. Its JSON Schema and docs/config.md are made from them."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    Strict,
    ValidationInfo,
    field_validator,
)

from shared.prompt_template import checked
from shared.secrets import public_address
from shared.source import is_web_address

from .vllm import GPUS, arguments_schema, quantization_schema, speculative_schema

# What `git check-ref-format` refuses below refs/heads/.
_NOT_IN_A_REVISION = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|^/|//|/$|(^|/)\.|\.lock(/|$)|\.$")


class Section(BaseModel):
    """A mapping in the config: unknown keys and implicit conversions are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _single(value: object) -> object:
    # Before the union is tried: one problem instead of one per member.
    if isinstance(value, dict | list):
        raise ValueError("must be a single value")  # noqa: TRY004  pydantic turns only ValueErrors into problems
    return value


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be one line without control characters")
    return value


def _source(value: str) -> str:
    try:
        parts = urlsplit(value)
    except ValueError:
        raise ValueError("is not a valid URL") from None
    if "://" in value and not (parts.scheme in {"http", "https"} and parts.hostname):
        raise ValueError("must be the name of a model on the hub, an http or https URL, or a path")
    return value


def _web_address(value: str) -> str:
    if not is_web_address(value):
        raise ValueError("must be an http or https URL")
    return value


def _revision(value: str) -> str:
    # The hub's library makes a path of it, below refs/ in its cache.
    if _NOT_IN_A_REVISION.search(value):
        raise ValueError("must be a commit, or a name that Git allows for a branch or tag")
    return value


def _draft(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if value.get("revision") is not None:
        try:
            _revision(str(value["revision"]))
        except ValueError as error:
            raise ValueError(f"has an invalid revision: it {error}") from None
    return value


Line = Annotated[str, Field(min_length=1), AfterValidator(_one_line)]
Revision = Annotated[Line, AfterValidator(_revision)]
# A signed URL is read with its signature, and written without it.
Source = Annotated[Line, AfterValidator(_source), PlainSerializer(public_address)]
WebAddress = Annotated[Line, AfterValidator(_web_address), PlainSerializer(public_address)]
Scalar = Annotated[str | int | float | bool | None, BeforeValidator(_single)]
Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], Strict(strict=False)
]  # YAML has lists only
Parallelism = Annotated[int, Field(ge=1, le=1024)]
BatchSize = Annotated[int, Field(ge=1, le=1 << 16)]
SequenceLength = Annotated[int, Field(ge=2, le=1 << 24)]


class ServerArguments(Section):
    """The arguments of one model in Triton's model repository."""

    args: dict[str, Scalar] = Field({}, description="Arguments by name, as in the model's config.pbtxt.")


_WITHOUT_EFFECT = "Accepted because the original cog-triton had it; without effect."


class Server(Section):
    """Arguments of the models in Triton's model repository."""

    preprocessing: ServerArguments | None = Field(None, description=_WITHOUT_EFFECT)
    tensorrt_llm: ServerArguments | None = Field(
        None,
        description="The model `tensorrt_llm`; docs/tensorrt_llm.md lists its arguments. Engines other than"
        " TensorRT-LLM read `decoupled_mode` alone.",
    )
    postprocessing: ServerArguments | None = Field(None, description=_WITHOUT_EFFECT)
    ensemble: ServerArguments | None = Field(None, description=_WITHOUT_EFFECT)
    tensorrt_llm_bls: ServerArguments | None = Field(None, description=_WITHOUT_EFFECT)


class Instantiate(Section):
    """How a runner serves the engine."""

    base_model: Line | None = Field(None, description="The runner image that the model's image is made from.")
    staging_dest: Line | None = Field(None, description="The image name that the result is pushed to.")
    weights: WebAddress | None = Field(
        None, description="http(s) URL of the engine.tar that the image serves."
    )
    system_prompt: str | None = Field(
        None,
        description="Default of the input `system_prompt`: for conversations that begin with none, and for"
        " templates with the field `{system_prompt}`.",
    )
    prompt_template: Annotated[str, AfterValidator(checked)] | None = Field(
        None, description="Default of the input `prompt_template`; has the field `{prompt}`."
    )
    stop_sequences: Texts = Field((), description="Default of the input `stop_sequences`.")
    server: Server | None = Field(None, description="Arguments for Triton's model repository.")


class ModelImageConfig(Section):
    """A file for `cog-triton instantiate` alone: nothing is built from it."""

    instantiate: Instantiate = Field(description="How a runner serves the engine.")


class EngineConfig(Section):
    """The keys that every engine has."""

    engine: str
    model: Source | None
    revision: Revision | None = Field(
        None, description="Branch, tag or commit of a model on the hub; not set: its default branch."
    )
    instantiate: Instantiate | None = Field(None, description="How a runner serves the engine.")

    @field_validator("revision")
    @classmethod
    def _has_revisions(cls, revision: str | None, info: ValidationInfo) -> str | None:
        if revision is not None and "://" in (info.data.get("model") or ""):
            raise ValueError("must be omitted: only models on the hub have revisions, and model is a URL")
        return revision


_MODEL = "Name of a model on the Hugging Face hub, http(s) URL of a tar, or path of a folder."
_TOTAL = "The most tokens of prompt and output together;"


class CTranslate2Config(EngineConfig):
    """Real weights on a CPU: laptops and CI."""

    engine: Literal["ctranslate2"] = Field(description="What generates the tokens.")
    model: Source = Field(description=_MODEL)
    quantization: Literal["float32", "int8"] = Field(
        "float32",
        description="Type of the weights in the engine; int8 is smaller and faster, and less exact.",
    )
    parallel_requests: Parallelism | None = Field(
        None, description="How many requests generate at the same time; not set: the number of CPU cores."
    )
    threads_per_request: Parallelism = Field(1, description="CPU threads that work on one request.")
    max_seq_len: SequenceLength | None = Field(
        None,
        description=f"{_TOTAL} not set: `max_position_embeddings` of the model.",
    )


class MockConfig(EngineConfig):
    """Tokens at a fixed rate without a model: load tests."""

    engine: Literal["mock"] = Field(description="What generates the tokens.")
    model: Source | None = Field(
        None, description=f"{_MODEL} Only its tokenizer is used; not set: one with numbered tokens is made."
    )
    tokens_per_second: float = Field(
        100.0, gt=0, le=1e6, allow_inf_nan=False, description="Tokens a second for each request."
    )
    time_to_first_token: float = Field(
        0.0, ge=0, le=3600, allow_inf_nan=False, description="Seconds from a request to its first token."
    )
    step_seconds: float = Field(
        0.0,
        ge=0,
        le=3600,
        allow_inf_nan=False,
        description="Seconds from one engine step to the next, each with one token for every request, "
        "instead of `tokens_per_second`; 0: each request has its own clock.",
    )
    max_batch_size: BatchSize | None = Field(
        None, description="The most requests at the same time; others wait. Not set: any number."
    )
    max_seq_len: SequenceLength = Field(4096, description="The most tokens of prompt and output together.")


class TensorRTLLMConfig(EngineConfig):
    """An engine compiled for one kind of NVIDIA GPU."""

    engine: Literal["tensorrt_llm"] = Field(description="What generates the tokens.")
    model: Source = Field(description=_MODEL)
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = Field(
        "auto",
        description="Type of weights and activations that are not quantized; auto: that of the checkpoint, or"
        " float16 in place of float32.",
    )
    quantization: Literal["fp8", "nvfp4", "int8_sq", "int4_awq", "w4a8_awq", "int8_wo", "int4_wo"] | None = (
        Field(None, description="`qformat` of TensorRT-LLM's quantize.py; not set: not quantized.")
    )
    max_batch_size: BatchSize = Field(2048, description="The most requests in one engine step.")
    max_input_len: SequenceLength | None = Field(
        None, description="Has no effect: `max_seq_len` and `max_num_tokens` limit prompts."
    )
    max_seq_len: SequenceLength | None = Field(
        None,
        description=f"{_TOTAL} not set: TensorRT-LLM takes it from the model.",
    )
    max_num_tokens: SequenceLength = Field(
        8192, description="The most tokens of all requests in one engine step."
    )
    tensor_parallel_size: Parallelism = Field(1, description="GPUs that share each layer.")
    pipeline_parallel_size: Parallelism = Field(1, description="Groups of GPUs that share the layers.")


class VLLMConfig(EngineConfig):
    """vLLM on NVIDIA GPUs: the model as it is published, without an engine build."""

    engine: Literal["vllm"] = Field(description="What generates the tokens.")
    model: Source = Field(description=_MODEL)
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = Field(
        "auto",
        description="Type of weights and activations that are not quantized; auto: that of the checkpoint, or"
        " 16 bits in place of float32.",
    )
    quantization: Line | None = Field(
        None,
        description="vLLM's method of quantization: the one with which the checkpoint's weights were"
        " quantized (awq, gptq, ...), or one by which vLLM quantizes them while it loads them (fp8,"
        " experts_int8, ...); not set: as the checkpoint's own config says (AWQ, GPTQ, FP8,"
        " compressed-tensors, ...).",
        json_schema_extra=quantization_schema(),
    )
    max_model_len: SequenceLength | None = Field(
        None, description=f"{_TOTAL} not set: vLLM takes it from the model."
    )
    tensor_parallel_size: Parallelism = Field(1, description="GPUs that share each layer.")
    pipeline_parallel_size: Parallelism = Field(1, description="Groups of GPUs that share the layers.")
    speculative_config: Annotated[dict[str, JsonValue], AfterValidator(_draft)] | None = Field(
        None,
        description="Speculative decoding, with vLLM's own keys. A draft `model` is"
        " named as the model is, with a `revision` of its own, and is packed into the archive too.",
        json_schema_extra=speculative_schema(),
    )
    gpu: Literal[*GPUS] | None = Field(  # type: ignore[valid-type] # the names are those of the table
        None,
        description="The GPU that will serve the model: `cog-triton check` says whether the model fits into"
        " that GPU's memory with a context of `max_model_len`.",
    )
    triton_model: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=128)] = Field(
        "vllm_model",
        description="Name of the model with the tensors of Triton's vLLM backend (`text_input`, "
        "`sampling_parameters`, ...) in the runner's Triton.",
    )
    engine_args: dict[str, JsonValue] = Field(
        {},
        description="Further engine arguments of vLLM, by the names of its Python API and of "
        "the `model.json` of Triton's vLLM backend.",
        json_schema_extra=arguments_schema(),
    )


BuildConfig = CTranslate2Config | MockConfig | TensorRTLLMConfig | VLLMConfig
