"""OpenAI's API: models, completions and chat completions, and what people probe for beside it."""
