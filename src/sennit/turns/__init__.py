"""Turns: the loop, its events, streams, tool calls and special turns."""
