"""vLLM on a GPU: our runner, vLLM's own engine and vLLM's own server, one after the other on one machine."""
