"""How one turn runs: the loop, its events, tools, streams and special turns."""
