"""Converts a Hugging Face checkpoint into a CTranslate2 model directory, without torch or transformers."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import CheckpointInvalid, ConversionFailed, NotEnoughSpace

from .checkpoint import Checkpoint
from .hyperparameters import read_hyperparameters
from .llama import make_model
from .variables import Variables
from .vocabulary import read_vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable

    from .hyperparameters import Hyperparameters

QUANTIZATIONS = ("float32", "int8")


def convert(model: Path, output: Path, quantization: str, progress: Callable[[int, int], None]) -> None:
    """Write model.bin, config.json and vocabulary.json into the new directory `output`.

    The same input gives the same bytes. `progress` gets the bytes written to model.bin and their total.
    `output` appears when it is complete. Raises UnsupportedArchitecture and CheckpointInvalid for checkpoints
    that cannot be converted, NotEnoughSpace when the disk is full, ConversionFailed when `output` cannot be
    written.
    """
    checkpoint = Checkpoint(model)
    hyperparameters = read_hyperparameters(checkpoint.config)
    # Before anything is made for each token and layer that config.json declares.
    checkpoint.require("model.embed_tokens.weight", (hyperparameters.vocab_size, hyperparameters.hidden_size))
    last_layer = f"model.layers.{hyperparameters.num_hidden_layers - 1}"
    checkpoint.require(f"{last_layer}.input_layernorm.weight", (hyperparameters.hidden_size,))
    vocabulary = read_vocabulary(model / "tokenizer.json", hyperparameters.vocab_size)
    variables = Variables(checkpoint, int8=quantization == "int8", progress=progress)
    spec = make_model(hyperparameters, variables, vocabulary)
    _refuse_leftovers(checkpoint, hyperparameters)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.parent) as partial:
            whole = Path(partial) / output.name
            whole.mkdir()
            spec.save(str(whole))
            whole.rename(output)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise NotEnoughSpace(reason="it was full before the engine was complete") from error
        raise ConversionFailed(step="convert", reason=error.strerror) from error


def _refuse_leftovers(checkpoint: Checkpoint, hyperparameters: Hyperparameters) -> None:
    """A tensor without a place means that config.json belongs to another model."""
    for name in checkpoint.never_required():
        tied = name == "lm_head.weight" and hyperparameters.tie_word_embeddings
        if not tied and not name.endswith("rotary_emb.inv_freq"):  # computed, kept by old versions
            raise CheckpointInvalid(reason=f"config.json has no place for the tensor {name}")
