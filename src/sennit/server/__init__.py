"""The server: REST, events and more over HTTP, for programs and browsers; decides nothing itself.

What it is made of (Starlette, uvicorn) is the extra `server`.
"""
