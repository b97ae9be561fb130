"""docs/tensorrt_llm.md, made from the table of parameters."""

from __future__ import annotations

from cli.acceptance import CHECKS
from shared.server_arguments import EFFECTIVE, IGNORED

_INTRO = """\
# The TensorRT-LLM engine

Made from `shared/server_arguments.py`, `cli/acceptance` and `tools/docs/tensorrt_llm.py` by `make docs`; do
not edit.

The engine process hosts `tensorrt_llm.bindings.executor` of TensorRT-LLM 1.2: requests are batched in flight,
and each step gives the new tokens of every active request. An engine that was built for several GPUs is
served by as many processes (tp x pp x cp of its config.json), which mpirun starts, one GPU each, on this
machine or on [several](several-hosts.md); rank 0 leads them. `WORLD_SIZE` is not needed; if it is set, it
must be that number.

| of a request | is honoured |
|---|---|
| top_k | up to 1024 |
| top_p, min_p, temperature | yes; a temperature of 0 means the likeliest token |
| min_tokens, seed | yes |
| length_penalty | no, E1103: the executor weighs the lengths of beams alone, and there are none |
| repetition_penalty, presence_penalty, frequency_penalty | yes |
| end ids | all of them; none is output |
| stop words | yes; they stay in the output of `tensorrt_llm`, while the text of `ensemble` ends before them |
| bad words | yes |
| max_tokens | up to what the prompt leaves of max_seq_len |

With min_tokens, the tokenizer's own EOS cannot be chosen before that many tokens; until then, any other end
id is a token like any other. Stop words ignore min_tokens, and a stop word of several tokens may begin in
the prompt.

A prompt may have max_seq_len - 1 tokens with chunked context; without it, also at most max_num_tokens
(engines that pad prompts: max_input_len).

A request that the executor would refuse, or not survive (ids outside the vocabulary), is refused
beforehand, with a code. After a CUDA error the engine process is started again. No error that a client gets
contains paths or backtraces; they are in the log.

## Parameters

`server.tensorrt_llm.args` in the section `instantiate` of the file in COG_TRITON_CONFIG, else of the config
in engine.tar; the names are those of TensorRT-LLM's own model repository. What is empty, null or an unfilled
placeholder (`${name}`) is not set. A value that is not allowed fails the start with E2505; an unknown name is
logged with the nearest known one, and ignored.
"""

_KNOWN = """\
## Which models quantize.py takes

The short form makes its checkpoint with quantize.py, whatever the precision. According to modelopt 0.37.0
(read in its wheel: torch/export/tensorrt_llm_utils.py) that works for each architecture for which
TensorRT-LLM's MODEL_MAP has a class with a config, such as LlamaForCausalLM, MistralForCausalLM,
MixtralForCausalLM and Qwen2ForCausalLM; else for what modelopt recognises as gpt, gemma, llama, mpt,
recurrentgemma, dbrx, mllama, T5, Bart or Whisper. Any other one is E3200. Models with a convert_checkpoint.py
of their own are built with the older form of the config.

## Several GPUs

The ranks are numbered by tensor parallelism first. With pipeline parallelism, TensorRT-LLM makes a
communicator of its own in which the stages are reversed: rank 0, which leads, has the last stage, and world
rank N need not be on GPU N. So `nvidia-smi` does not show which stage a rank has. `gpu_device_ids` lists the
GPUs in the order of the stages.

## How each claim is known

Nothing on this page has been seen on a GPU yet. The sources that were read are the closest to 1.2.1
that could be had.
"Stand-in" means that a stand-in for the library behaves that way, and the tests run against it.
`cog-triton acceptance` (`make acceptance`) checks the real one against these claims on a machine with a GPU;
see [the first build](tensorrt_llm_images.md).
"""
# What no acceptance check covers: the claim, its source, and how else it is known.
_UNCHECKED = (
    (
        "a final response always comes, with a finish reason, even after a cancel",
        "llmRequest.cpp: createResult",
        "stand-in",
    ),
    ("await_responses takes a timedelta, and an int is an id", "nanobind chrono caster", "stand-in"),
    (
        "with chunked context a prompt has at most max_seq_len - 1 tokens",
        "batch_manager/trtGptModel.h: getMaxInputLen",
        "stand-in",
    ),
    (
        "quantize.py takes the architectures named above, and reports others",
        "the wheel of modelopt 0.37.0: torch/export/tensorrt_llm_utils.py",
        "stand-in",
    ),
    (
        "nothing can be run after a CUDA error: the engine process is started again",
        "executorImpl.cpp: forwardAsync; CUDA's programming guide on sticky errors",
        "stand-in",
    ),
    (
        "a stop word of several tokens may match across prompt and output",
        "kernels/stopCriteriaKernels.cu",
        "stand-in",
    ),
    (
        "get_latest_iteration_stats raises after shutdown(): the last statistics stay",
        "executorImpl.cpp",
        "stand-in",
    ),
    (
        "top_k above 1024 and a temperature of 0 never reach the executor",
        "samplingTopKKernels.cu, samplingConfig.cpp",
        "our own test",
    ),
    (
        "after an error of a step that is not a CUDA error, the executor can still be used",
        "executorImpl.cpp: forwardAsync, forwardSync",
        "stand-in",
    ),
    (
        "a process that exits after MPI_Init without MPI_Finalize makes mpirun fail and kill the others",
        "Open MPI",
        "run: Open MPI 5.0 and mpi4py 4.1.2, without TensorRT-LLM",
    ),
    (
        "with pipeline parallelism, the stages of the ranks are reversed, and rank 0 leads from the last one",
        "executor/executorImpl.cpp: initializeWorkers",
        "stand-in",
    ),
    (
        "gpu_device_ids are those of the ranks of that communicator, stage after stage",
        "runtime/worldConfig.cpp: WorldConfig::mpi",
        "source only",
    ),
    (
        "TensorRT-LLM opens libpython3.12.so and libpython3.12.so.1.0; flashinfer makes folders under HOME",
        "tensorrt_llm/__init__.py; flashinfer 0.6",
        "stand-in; a test of the builder's image",
    ),
    (
        "the texts of errors: prompt too long, queue full, out of memory, another GPU",
        "llmRequest.cpp, executorImpl.cpp; users' issues",
        "stand-in",
    ),
)


def page() -> str:
    """The text of the page."""
    effective = "".join(
        f"| `{name}` | {parameter.values} | {_sets(parameter.goes_to)} |\n"
        for name, parameter in EFFECTIVE.items()
    )
    ignored = "".join(f"| `{name}` | {reason} |\n" for name, reason in IGNORED.items())
    return "\n".join(
        [
            _INTRO,
            f"| is checked | value | sets |\n|---|---|---|\n{effective}",
            f"| is accepted and ignored | because |\n|---|---|\n{ignored}",
            _KNOWN,
            _claims(),
        ]
    )


def _sets(goes_to: str) -> str:
    return goes_to if goes_to == "nothing" else f"`{goes_to}`"


def _claims() -> str:
    rows = [
        f"| {check.assumes} | {check.source} | stand-in | `{check.name}` |"
        for check in CHECKS["tensorrt_llm"]
        if check.name != "other image"
    ]
    rows += [f"| {claim} | {source} | {known} | no check |" for claim, source, known in _UNCHECKED]
    lines = ["| claim | source read | known by | on a GPU: shown by the check |", "|---|---|---|---|"]
    return "\n".join([*lines, *rows]) + "\n"
