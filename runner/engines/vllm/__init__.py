"""vLLM as an engine: its V1 engine core, driven without its tokenizer and its front end."""
