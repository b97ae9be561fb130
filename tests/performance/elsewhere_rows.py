"""What this machine cannot measure: the rows that need a GPU, and those that need gigabytes from others' indexes.

Each names the command that measures it. [performance-gpu.md](performance-gpu.md) and [pruning.md](pruning.md) have
the latest figures of all but the last, which has not been measured yet. The whole command of
`tests.gpu.prove_libraries` is at the end of [pruning-libraries.md](pruning-libraries.md).
"""

from __future__ import annotations

from tests.performance.row import Row

_SERVING = "python3 -m tests.gpu.serving --target DIR --side runner async_llm serve serve_rust"
_PROVE = "python -m tests.gpu.prove_libraries --sm 80 86 90 --cut ..."


def rows() -> list[Row]:
    gpu = "on a GPU, 8B shape, 64, 256 and 512 streams: tokens/s of our front"
    return [
        Row(f"{gpu} / the engine driven directly", None, at_least=0.97, command=_SERVING),
        Row(f"{gpu} / `vllm serve`, Python and Rust fronts", None, at_least=1, command=_SERVING),
        *(
            Row(
                f"vLLM's engine layer for {sm}, compressed: pruned / unpruned",
                None,
                at_most=most,
                command=_PROVE,
            )
            for sm, most in ((80, 0.5), (86, 0.5), (90, 0.54))
        ),
        Row(
            "TensorRT-LLM's runner image, compressed, GB",
            None,
            at_most=5,
            command="nix build .#cog-triton-runner-86 && ./result inspect",
        ),
    ]
