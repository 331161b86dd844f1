"""The protocol of the AI SDK's user interfaces (`useChat`), on sessions of the server."""
