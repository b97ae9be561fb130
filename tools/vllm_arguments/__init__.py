"""Makes shared/vllm_arguments.json, the engine arguments of vLLM that a config may set, from vLLM's wheel."""
