"""Special turns: requests beside the conversation, such as greetings and summaries."""
