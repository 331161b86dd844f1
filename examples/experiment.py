"""A branching experiment: three system prompts from the same point, judged, compared, exported.

Prints

    curt 0.4
    teacher 0.9
    poet 0.2
    main (2 messages)
    ├─ curt (5 messages, forked after 2)
    ├─ teacher (5 messages, forked after 2)
    └─ poet (5 messages, forked after 2)
    2 pairs in pairs.jsonl
"""

from pydantic import BaseModel

import sennit
from sennit.learning import ExportOptions

MODEL = "openai:gpt-5"
PROMPTS = {
    "curt": "Answer in five words.",
    "teacher": "Answer for a beginner, step by step.",
    "poet": "Answer in verse.",
}


class Verdict(BaseModel):
    score: float
    reason: str


with sennit.open("experiment.db") as client:
    session = client.session("bowline")
    session.conversation(model=MODEL).say("Which knot for a fixed loop?")
    for name, prompt in PROMPTS.items():
        branch = session.fork("main", name=name, system=prompt)
        answer = session.conversation(branch, model=MODEL).say("How do I tie it?").text
        judge = sennit.conversation(MODEL, system="Score 0 to 1: could a beginner tie it?")
        verdict = judge.say(answer, output=Verdict).output
        session.label(branch.messages[-1], verdict.score, by="judge")
        print(name, verdict.score)
    print(session.tree())
    pairs = client.export_training("pairs.jsonl", ExportOptions(format="dpo"))
    print(pairs.rows["all"], "pairs in pairs.jsonl")
