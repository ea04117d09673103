"""The exercises of the course, and what ``labkit.check``, ``hint`` and ``solution`` do.

``exercise``   what an exercise is: a trial, what it must give, what may go wrong, hints
``nb00`` …     the exercises of each notebook (they import torch: loaded when one is needed)
``catalogue``  find one by its id
``ask``        check an answer, give a hint, show a solution
``runner``     try an answer on all ranks, bounded (``labkit.rank.trial`` is the part there)
``notebook``   try an answer that needs no ranks
``mistakes``   how a misconception shows in what came back
``compare``    what counts as the same value
``verdict``    judge, and name what is wrong
``report``     write it down

Nothing is imported here: the ranks need the exercises only, and no kernel needs all.
"""
