"""Where it is kept: the Store and its promises, in memory and on SQLite."""
