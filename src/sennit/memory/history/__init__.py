"""History of memories: evidence, earlier versions, undo and forgetting."""
