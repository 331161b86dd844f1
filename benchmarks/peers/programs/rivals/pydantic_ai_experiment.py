import json
from pathlib import Path

from pydantic import BaseModel
from pydantic_ai import Agent

MODEL = "openai-chat:gpt-5"
PROMPTS = {
    "curt": "Answer in five words.",
    "teacher": "Answer for a beginner, step by step.",
    "poet": "Answer in verse.",
}


class Verdict(BaseModel):
    score: float
    reason: str


judge = Agent(MODEL, instructions="Score 0 to 1: could a beginner tie it?", output_type=Verdict)
first, question = "Which knot for a fixed loop?", "How do I tie it?"
start = Agent(MODEL).run_sync(first)
answers = {}
for name, prompt in PROMPTS.items():
    agent = Agent(MODEL, instructions=prompt)
    answer = agent.run_sync(question, message_history=start.all_messages()).output
    verdict = judge.run_sync(answer).output
    answers[name] = (verdict.score, answer)
    print(name, verdict.score)
for name, (_, answer) in answers.items():
    print(f"{name}: {first} > {start.output} > {question} > {answer}")
best = max(answers, key=lambda name: answers[name][0])
rows = []
for score, answer in answers.values():
    if score < answers[best][0]:
        prompt = [
            {"role": "system", "content": PROMPTS[best]},
            {"role": "user", "content": first},
            {"role": "assistant", "content": start.output},
            {"role": "user", "content": question},
        ]
        chosen = [{"role": "assistant", "content": answers[best][1]}]
        rejected = [{"role": "assistant", "content": answer}]
        rows.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
print(len(rows), "pairs in pairs.jsonl")
