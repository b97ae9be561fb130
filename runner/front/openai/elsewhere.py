"""Paths of other servers and APIs that clients try here, and what to use instead."""

from __future__ import annotations

_CHAT = "Use /v1/chat/completions"
_TEXT = "Use /v1/completions or /v1/chat/completions"
_BASE = "Give your client a base URL that ends in /v1, once"
_NO_VECTORS = "A runner only generates text: use a server for embedding or ranking models"
_NO_MEDIA = "A runner only reads and generates text: use a server for such models"
_NOTHING_STORED = "A runner stores nothing: send each request to /v1/chat/completions or /v1/completions"

_INSTEAD = {
    "/v1/messages/count_tokens": "Use /tokenize with the same messages",
    "/v1/messages": f"{_CHAT}, or a proxy that translates Anthropic's API into it, such as LiteLLM",
    "/v1/responses": f"{_CHAT}: most clients have an option for it",
    "/v1/complete": _TEXT,
    "/v1/completion": _TEXT,
    "/v1/chat/completion": _CHAT,
    "/v1/engines": f"{_TEXT}, with the name of the model in the body",
    "/v1/embeddings": _NO_VECTORS,
    "/v1/embed": _NO_VECTORS,
    "/v1/rerank": _NO_VECTORS,
    "/v1/score": _NO_VECTORS,
    "/v1/pooling": _NO_VECTORS,
    "/v1/classify": _NO_VECTORS,
    "/v1/moderations": _NO_VECTORS,
    "/v1/audio": _NO_MEDIA,
    "/v1/images": _NO_MEDIA,
    "/v1/videos": _NO_MEDIA,
    "/v1/realtime": f"{_CHAT} with stream: true",
    "/v1/assistants": _NOTHING_STORED,
    "/v1/threads": _NOTHING_STORED,
    "/v1/conversations": _NOTHING_STORED,
    "/v1/files": _NOTHING_STORED,
    "/v1/batches": _NOTHING_STORED,
    "/v1/fine_tuning": _NOTHING_STORED,
    "/v1/predictions": "Use /predictions: Cog's API has no /v1",
    "/v1/tokenize": "Use /tokenize",
    "/v1/detokenize": "Use /detokenize",
    "/v1/v1": _BASE,
    "/chat/completions": _BASE,
    "/completions": _BASE,
    "/models": _BASE,
    "/embeddings": _NO_VECTORS,
    "/responses": f"{_CHAT}: most clients have an option for it",
    "/messages": f"{_CHAT}, or a proxy that translates Anthropic's API into it, such as LiteLLM",
    "/api/generate": "Use /v1/completions: this is not Ollama",
    "/api/chat": f"{_CHAT}: this is not Ollama",
    "/api/tags": "Use /v1/models: this is not Ollama",
    "/generate": _TEXT,
    "/generate_stream": f"{_TEXT}, with stream: true",
    "/invocations": _TEXT,
    "/rerank": _NO_VECTORS,
    "/score": _NO_VECTORS,
    "/pooling": _NO_VECTORS,
    "/classify": _NO_VECTORS,
    "/v2": "Use the port of TRITON_HTTP_ADDRESS, where the operator has set it",
}
OUTSIDE = tuple(folder for folder in _INSTEAD if not folder.startswith("/v1/"))
"""Those that are not below `/v1`."""


def instead_of(path: str) -> str | None:
    """What to use instead of a path that is not served; None for one that nobody knows."""
    for folder, instead in _INSTEAD.items():
        if f"{path}/".startswith(f"{folder}/"):
            return instead
    return None
