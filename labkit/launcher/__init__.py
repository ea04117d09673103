"""Start the ranks: one warm process imports torch once and forks every rank from it.

``warm``        the owner's handle on the warm process (no heavy imports)
``folder``      the private folder of a lab
``forkserver``  what runs inside the warm process
``controller``  the ipyparallel controller, as the warm process forks it
``engine``      one rank, as the warm process forks it
``ipp``         the same, as ipyparallel launchers
``stock``       what ipyparallel's own launchers are told: "mpi", "ssh", "slurm"
``started``     how such a launcher fares: ranks that will not come, or have ended
``ssh``         a look at the hosts before anything starts there
``slurm``       the job, and how it fares
``remote``      one rank, as such a launcher starts it
``farewell``    tell the controller that a rank has ended
"""
