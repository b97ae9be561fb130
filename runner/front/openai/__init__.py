"""OpenAI's API: models, completions and chat completions, and what else clients probe for."""
