"""A file as safetensors writes it."""

import json
import struct


def safetensors(size: int = 1000) -> bytes:
    """`size` bytes of one tensor, after a header."""
    tensor = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}
    header = json.dumps({"a": tensor}).encode()
    return struct.pack("<Q", len(header)) + header + (bytes(range(256)) * (size // 256 + 1))[:size]
