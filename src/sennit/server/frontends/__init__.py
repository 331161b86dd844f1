"""Chats of web pages, in the protocols of their frameworks: the AI SDK and AG-UI."""
