"""What may be asked for: operations on a branch, and the boundary they run in."""
