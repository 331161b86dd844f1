"""The OpenAI-compatible API: chat completions, responses and conversations."""
