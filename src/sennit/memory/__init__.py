"""What is kept for good: archives, summaries, memories and how they are found again."""
