import llm

model = llm.get_model("gpt-4o-mini")
print(model.prompt("Name a knot that does not slip.").text())
