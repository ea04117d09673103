"""Watch ranks that wait for one another.

``watcher``  ask the ranks, only as much as needed
"""
