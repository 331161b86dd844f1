"""The Anthropic-compatible API: /v1/messages, on the same branches as the OpenAI-compatible API."""
