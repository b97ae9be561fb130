"""The configs of cog-trt-llm and of cog-triton's official models, which load unchanged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from .models import Instantiate, Line, Revision, Section, WebAddress

ArgumentValue = str | int | float | bool | None


def _plain(value: object) -> object:
    # Before the union is tried: one problem instead of one per member.
    members = value if isinstance(value, list) else [value]
    if any(isinstance(one, dict | list) for one in members):
        raise ValueError("must be a single value, or a list of them")
    if any(isinstance(one, str) and not one.isprintable() for one in members):
        raise ValueError("must be one line without control characters")
    return tuple(value) if isinstance(value, list) else value


class ToolSection(Section):
    """A step that runs a tool of TensorRT-LLM."""

    executable: str | None = Field(
        None, description="`python` (the default when there is a `script`) or `trtllm-build`."
    )
    script: Line | None = Field(
        None, description="A script of the example; one that no longer exists is mapped to its successor."
    )
    output_dir: Line = Field(description="Where the step's files are, in the work directory.")
    args: dict[Line, Annotated[ArgumentValue | tuple[ArgumentValue, ...], BeforeValidator(_plain)]] = Field(
        {},
        description="Arguments by name. One without a value is a flag. `false` omits it, but means `disable`"
        " for one whose values are `enable` and `disable`.",
    )


class CogTRTLLMConfig(Section):
    """The form of cog-trt-llm: each step of the build with the arguments of its tool."""

    engine: Literal["tensorrt_llm"] = Field("tensorrt_llm", description="May be omitted.")
    model_id: Line = Field(description="Name of a model on the Hugging Face hub, or path of a folder.")
    revision: Revision | None = Field(
        None, description="Branch, tag or commit of the model; not set: its default branch."
    )
    model_tar_url: WebAddress | None = Field(
        None, description="http(s) URL of a tar with the model, used instead of the hub."
    )
    weight_format: Literal["safetensors", "bin", "pt"] | None = Field(
        None, description="The preferred form of the weights; `pt` means safetensors."
    )
    example_name: Line | None = Field(
        None, description="The folder of TensorRT-LLM's examples that holds the scripts, for example `llama`."
    )
    convert_to_ft: ToolSection | None = Field(
        None, description="Makes a TensorRT-LLM checkpoint from the model."
    )
    quantize: ToolSection | None = Field(
        None, description="Makes a quantized TensorRT-LLM checkpoint from the model."
    )
    build: ToolSection = Field(description="Makes the engine from the checkpoint.")
    instantiate: Instantiate | None = Field(None, description="How a runner serves the engine.")
    merge: bool | None = Field(None, exclude=True, description="Has no effect: an old builder wrote it.")
    hf_token: str | None = Field(
        None,
        exclude=True,
        repr=False,
        description="Ignored: a token is sent in HF_TOKEN (command line) or the input `hf_token` (API).",
    )


class BuiltConfig(Section):
    """Where the build config of an official model is."""

    config: Line = Field(
        description="Path or http(s) URL; a path starts at the folder of this file, or at one above it."
    )
    version: Line | None = Field(None, description="The version of the builder that it was written for.")


class OfficialConfig(Section):
    """The form of cog-triton's official models: a build config elsewhere, and how it is served."""

    build: BuiltConfig = Field(description="Where the build config is.")
    instantiate: Instantiate = Field(
        description="How a runner serves what is built; `instantiate` in the build config is only checked."
    )
