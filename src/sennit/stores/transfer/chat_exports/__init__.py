"""Import of conversations that other programs exported: ChatGPT, Claude, OpenAI JSONL, llm."""
