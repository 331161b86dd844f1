"""A DSPy program that remembers its conversation, is scored, and learns from its best turns.

Prints

    The bowline.
    As wide as you tie it.
    [1.0, 0.0]
    1 demonstration
    Bend the loop back.
"""

import dspy
from dspy.teleprompt import LabeledFewShot

import sennit
from sennit.learning.dspy import Session

dspy.configure(lm=dspy.LM("openai/gpt-5", cache=False))


def brief(_: dspy.Example, prediction: dspy.Prediction) -> bool:
    """Return whether an answer has at most three words."""
    return len(prediction.answer.split()) <= 3


with sennit.open("dspy.db") as client:
    session = Session(dspy.Predict("question -> answer"), store=client, key="knots")
    for question in ("Name a knot that does not slip.", "How wide is its loop?"):
        print(session(question=question).answer)
    print(session.score(brief))
    good = session.to_examples(min_score=1, include_history=False)
    compiled = LabeledFewShot(k=2).compile(session, trainset=good)
    print(len(compiled.predictors()[0].demos), "demonstration")
    session.update_module(compiled)  # the same conversation, with the compiled program
    print(session(question="How do I untie it?").answer)
