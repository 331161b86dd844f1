"""Conversations as training data: examples, scores, preferences and the files made of them."""
