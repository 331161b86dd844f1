"""Sennit beside other session stores and turn loops: the same work, in turns, in one run.

Each system is a worker process in its own virtual environment, driven by `__main__` over JSON
lines; the workers take turns and the best time of each counts. Nothing calls a model.

All write one SQLite file with WAL and `synchronous=FULL`, so an acknowledged message survives a
power cut in each of them. Sennit sets FULL by itself; the peers set WAL and leave `synchronous` to
SQLite, whose default is FULL (each worker reads both pragmas back from its own kind of connection,
and the table's footer says what it found; a build with another default shows there).

- **OpenAI Agents SDK**: `SQLiteSession` (a thread hop and one commit per `add_items`), and
  `AsyncSQLiteSession` (aiosqlite) as a second column. Forks: `create_branch_from_turn` of
  `AdvancedSQLiteSession`, the one with branches.
- **LangGraph**: `SqliteSaver` for single calls, `AsyncSqliteSaver` for concurrent ones, below a
  graph on `MessagesState`. A message is added with `update_state`, the cheapest public way (a run
  of the graph writes more checkpoints); a fork is `update_state` on an earlier checkpoint. A second
  column takes `DeltaChannel` (beta), which does not store the whole list with each checkpoint.

Where there was a choice it favours the peer: LangGraph's 10,000 messages are two checkpoints, not
10,000 (which would be gigabytes), and its appends go to young threads (their cost grows with the
length); connecting and compiling its graph for a load are not timed, while Sennit's and the SDK's
opening of the file is; and the fastest column of both peers is what Sennit is compared with.

LangGraph takes writes to one thread from one caller at a time: of 16 tasks on one thread, most
messages end up on side lines of the checkpoint history and are missing from the thread's state. The
table says how many, and leaves such a time out of the comparison.

A turn with a tool call (`turning`, `turn_*`) has a model that answers at once, given to each system
through its own door for models, and a tool that takes no time: what is left is the loop. The
OpenAI Agents SDK runs an `Agent` by its `Runner`, Pydantic AI an `Agent` with `FunctionModel`,
LangGraph its prebuilt agent without a checkpointer; none of them stores anything, and each turn
starts anew. Sennit goes on with one conversation, in memory and on SQLite with full durability.
The time is the processor's, as these turns wait for nothing but, in the last case, the disk.
"""
