"""A stand-in for TensorRT-LLM on machines without GPUs: its three tools, and nothing else of it.

They take the arguments of the real ones, read real safetensors, refuse what the real ones refuse, with their
words, and write checkpoints and engines of the real layout; an "engine" is the weights behind a line of JSON.
Two runs write the same bytes. `environments.py` installs them where a builder looks for TensorRT-LLM.
"""

VERSION = "1.2.1"
