"""docs/tensorrt_llm.md, made from the table of parameters."""

from __future__ import annotations

from shared.server_arguments import EFFECTIVE, IGNORED

_INTRO = """\
# The TensorRT-LLM engine

Made from `runner/engines/tensorrt_llm` by `make docs`; do not edit.

The engine process hosts `tensorrt_llm.bindings.executor` of TensorRT-LLM 1.2: requests are batched in flight,
each step gives the new tokens of every active request. An engine that was built for several GPUs is served by
as many processes (tp x pp x cp of its config.json), which mpirun starts on this machine, one GPU each; rank 0
leads them. `WORLD_SIZE` is not needed; when it is set, it must be that number.

| of a request | is honoured |
|---|---|
| top_k | up to 1024 |
| top_p, temperature | yes; 0 is the likeliest token |
| min_tokens, seed, length_penalty | yes |
| repetition_penalty, presence_penalty, frequency_penalty | yes |
| end ids | all of them; none is output |
| stop words | yes; they stay in the output of `tensorrt_llm`, while the text of `ensemble` ends before them |
| bad words | yes |
| max_tokens | up to what the prompt leaves of max_seq_len |

With min_tokens the tokenizer's own EOS cannot be chosen before so many tokens; another end id is until then
a token like any other. Stop words know no min_tokens, and one of several tokens may begin in the prompt.

A prompt may have max_seq_len - 1 tokens with chunked context; without, at most max_num_tokens too (engines
that pad prompts: max_input_len).

A request that the executor would refuse, or not survive (ids outside of the vocabulary), is refused before
with a code. After an error of CUDA the engine process is started again. Error texts reach nobody with paths
or backtraces in them.

## Parameters

`server.tensorrt_llm.args` in the section `instantiate` of the file that COG_TRITON_CONFIG names, else of the
config in engine.tar; the names are those of TensorRT-LLM's own model repository. What is empty, null or an
unfilled placeholder (`${name}`) is not set. A value that is not allowed fails the start with E2505; a name
that nobody knows is logged with the nearest known one, and ignored.
"""

_NOT_VERIFIED = """\
## Not verified

The engine was tested against a stand-in with the executor's names, signatures and failure modes, made from
TensorRT-LLM's sources of about that version, without a GPU. On a real one these are to be checked:
- whether the wheel's binding (nanobind or pybind11) takes every keyword used here, above all
  `fail_fast_on_attention_window_too_large`, and a `timedelta` as the time-out of `await_responses`;
- that a final response always has a finish reason, and that enum members have `name`;
- that end ids other than the first, sent as stop words of one token, end a sequence with STOP_WORDS;
- that a temperature of 0 is refused by some versions, and top_k above 1024 by all (both never reach it here);
- the texts of errors of TensorRT (version, compute capability), which are those that users reported;
- which GPU a rank takes (rank N should take GPU N), and how soon other ranks end when rank 0 is gone;
- how the executor behaves after an error of a step that is not one of CUDA: it is used on.
"""


def page() -> str:
    """The text of the page."""
    effective = "".join(
        f"| `{name}` | {parameter.values} | `{parameter.goes_to}` |\n"
        for name, parameter in EFFECTIVE.items()
    )
    ignored = "".join(f"| `{name}` | {reason} |\n" for name, reason in IGNORED.items())
    return "\n".join(
        [
            _INTRO,
            f"| has an effect | value | sets |\n|---|---|---|\n{effective}",
            f"| is accepted and ignored | because |\n|---|---|\n{ignored}",
            _NOT_VERIFIED,
        ]
    )
