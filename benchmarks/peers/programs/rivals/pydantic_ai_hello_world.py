from pydantic_ai import Agent

agent = Agent("openai-chat:gpt-5")
print(agent.run_sync("Name a knot that does not slip.").output)
