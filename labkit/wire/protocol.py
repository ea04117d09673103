"""Names that notebook, launchers and ranks share.

Their messages are in ``requests`` and ``samples`` (the control channel) and ``errands``.
"""

from __future__ import annotations

#: Begins the name of the file that a controller leaves for each client that connects.
CLIENT = "client-"

# -- environment variables, by what they carry from the process that starts another ---------------

#: The launcher's own number for an engine: ranks of a host are in its order.
RANK_HINT = "LABKIT_RANK_HINT"
#: The number of the process that a controller follows,
OWNER_PID = "LABKIT_OWNER"
#: the folder that it removes when that one has ended,
LAB_FOLDER = "LABKIT_FOLDER"
#: and a command (JSON) to run then, such as the one that cancels a job.
LAST_COMMAND = "LABKIT_LAST_COMMAND"
#: A folder that is only for ranks of one lab on one host, below the home: the last of them
#: removes it.
REMOTE_FOLDER = "LABKIT_REMOTE_FOLDER"
#: A folder on the notebook's host for what shall outlive a rank.
RECORD_FOLDER = "LABKIT_RECORD_FOLDER"
#: The folder of the notebook, which a rank's host may have too,
WORK_FOLDER = "LABKIT_WORK_FOLDER"
#: and whether others can write there, as far as the notebook's host knows.
SHARED_WORK = "LABKIT_SHARED_WORK"

# -- what a rank displays for the notebook alone ---------------------------------------------------

#: The messages of a cell or a call: a ``samples.Sample`` as ``encoding`` writes it.
MESSAGES = "application/vnd.labkit.messages+json"

# -- what notebook and ranks add to ipyparallel's messages -----------------------------------------

#: In the metadata of a request: the rank need not tell that it is busy, nor what it was asked.
#: In the content of its reply: whether no output comes, so that it does not tell of the end either.
QUIET = "labkit_quiet"
#: In the content of the reply to such a request: the collectives of a cell or a call, a
#: ``calls.CellCalls`` as ``encoding`` writes it; missing: there were none.
COLLECTIVES = "labkit_collectives"

#: What a rank tells the hub when it is there: it need not wait for two heartbeats.
READY = "labkit_ready"

# -- torch's collectives --------------------------------------------------------------------------

#: Collectives in which one rank gives to the others, or takes from them: one end can finish
#: though another rank has not come.
FROM_ROOT, TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")
ROOTED = FROM_ROOT + TO_ROOT

#: What a goal of an exercise can count, per rank, while the answer runs.
MEASURES = ("messages sent", "bytes sent", "collectives")
