"""Watch ranks that wait for one another, and prove that they wait in vain.

``facts``    what a rank says of itself: what it waits for, what it has provided
``proof``    which ranks can never go on
``cause``    the likely reason, in one sentence
``story``    the message for the learner
``step``     whether ranks that have ended their cell are in step
``watcher``  ask the ranks, only as much as needed
"""
