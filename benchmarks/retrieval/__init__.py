"""How well things are found: our own long conversations, with questions whose answers are known."""
