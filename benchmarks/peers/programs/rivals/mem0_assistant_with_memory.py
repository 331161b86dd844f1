from mem0 import Memory
from openai import OpenAI

DAYS = {
    "monday": "My name is Ada.",
    "tuesday": "I am allergic to peanuts.",
    "wednesday": "What shall I cook tonight?",
    "thursday": "I moved to Lisbon.",
    "friday": "What shall I cook for my guests?",
}

memory = Memory.from_config(
    {
        "vector_store": {"provider": "qdrant", "config": {"path": "qdrant", "on_disk": True}},
        "history_db_path": "history.db",
    }
)
openai = OpenAI()
ada = {"user_id": "ada"}
for day, text in DAYS.items():
    found = memory.search(text, filters=ada)["results"]
    system = "You know of the user: " + " ".join(entry["memory"] for entry in found)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    reply = openai.chat.completions.create(model="gpt-5", messages=messages)
    answer = reply.choices[0].message.content
    print(answer)
    said = [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
    memory.add(said, user_id="ada", metadata={"day": day})
for entry in memory.get_all(filters=ada)["results"]:
    if entry["metadata"]["day"] == "thursday":
        memory.delete(entry["id"])
for entry in memory.get_all(filters=ada)["results"]:
    print(entry["id"], entry["memory"])
    print("  ", entry["metadata"]["day"])
