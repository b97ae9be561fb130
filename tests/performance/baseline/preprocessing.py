"""Triton's Python backend runs this: a prompt to tokens."""

from __future__ import annotations

import json

import numpy as np
import triton_python_backend_utils as pb
from tokenizers import Tokenizer


class TritonPythonModel:
    """The first model of the ensemble."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Read the tokenizer that the model's configuration names."""
        parameters = json.loads(arguments["model_config"])["parameters"]
        self._tokenizer = Tokenizer.from_file(parameters["tokenizer"]["string_value"])

    def execute(self, requests: list) -> list:
        """One response for each request."""
        return [pb.InferenceResponse(self._outputs(request)) for request in requests]

    def _outputs(self, request) -> list:
        (prompt,) = pb.get_input_tensor_by_name(request, "QUERY").as_numpy().reshape(-1)
        count = pb.get_input_tensor_by_name(request, "REQUEST_OUTPUT_LEN").as_numpy()
        tokens = self._tokenizer.encode(prompt.decode()).ids
        return [
            pb.Tensor("INPUT_ID", np.array([tokens], np.int32)),
            pb.Tensor("REQUEST_INPUT_LEN", np.array([[len(tokens)]], np.int32)),
            pb.Tensor("REQUEST_OUTPUT_LEN", count.astype(np.int32)),
        ]
