"""Two prompts compared on branches, with structured output, scores and an export."""

from pydantic import BaseModel

import sennit
from sennit import Session, iModel
from sennit.learning import Example, ExportOptions


class Verdict(BaseModel):
    grade: float
    reason: str


def judge(example: Example) -> float:
    reply = iModel("openai:gpt-5-mini", seed=7).invoke_sync(
        f"Grade this answer: {example.answered}", output=Verdict, top_p=0.5
    )
    return reply.output.grade


def answer(session: Session, prompt: str) -> None:
    branch = session.fork("main", name=prompt.split()[0].lower(), system=prompt)
    conversation = session.conversation(branch, model="openai:gpt-5")
    print(conversation.run().text)
    verdict = conversation.say("Grade yourself.", output=Verdict).output
    print(verdict.grade, verdict.reason.upper())


def main() -> None:
    with sennit.open(":memory:") as client:
        session = client.session("knots")
        session.add_message("user", "Name a knot that does not slip.")
        for prompt in ("Brief answers only.", "Long answers, please."):
            answer(session, prompt)
        print(session.tree())
        print(session.diff("brief", "long"))
        for example in session.score(judge):
            print(example.instruction.text[:20], example.answered[:20])
        done = client.export_training("pairs.jsonl", ExportOptions(format="preference"))
        print(done.rows)


if __name__ == "__main__":
    main()
