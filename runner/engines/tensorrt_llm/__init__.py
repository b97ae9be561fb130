"""TensorRT-LLM on NVIDIA GPUs, through `tensorrt_llm.bindings.executor`."""
