"""Triton's Python backend runs this: the tokens of one response to text."""

from __future__ import annotations

import json

import numpy as np
import triton_python_backend_utils as pb
from tokenizers import Tokenizer


class TritonPythonModel:
    """The last model of the ensemble."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Read the tokenizer that the model's configuration names."""
        parameters = json.loads(arguments["model_config"])["parameters"]
        self._tokenizer = Tokenizer.from_file(parameters["tokenizer"]["string_value"])

    def execute(self, requests: list) -> list:
        """One response for each request: the text, and the tokens as they came."""
        return [pb.InferenceResponse(self._outputs(request)) for request in requests]

    def _outputs(self, request) -> list:
        tokens = pb.get_input_tensor_by_name(request, "TOKENS_BATCH").as_numpy().reshape(-1)
        text = self._tokenizer.decode(tokens.tolist())
        return [
            pb.Tensor("OUTPUT", np.array([[text.encode()]], object)),
            pb.Tensor("OUTPUT_IDS", tokens.astype(np.int32).reshape(1, -1)),
        ]
