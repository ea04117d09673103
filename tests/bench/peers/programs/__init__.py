"""The programs that are measured, one per peer, each started by its path in a process of its own.

A program of a peer whose ranks stay takes the number of ranks, answers with the moment at which
the first ``all_reduce`` had ended on rank 0, and then does what stdin says (``protocol.serve``).
One that runs a function to its end also takes what the function shall do (``protocol.play``).
"""
