"""Start the ranks: one warm process imports torch once and forks every rank from it.

``warm``        the owner's handle on the warm process (no heavy imports)
``folder``      the private folder of a lab
``forkserver``  what runs inside the warm process
``controller``  the ipyparallel controller, as the warm process forks it
``engine``      one rank, as the warm process forks it
``ipp``         the same, as ipyparallel launchers
"""
