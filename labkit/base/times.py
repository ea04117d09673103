"""All times of labkit: how long one process waits for another, and how often it looks.

Every entry is in seconds and of one of two kinds.

A **bound** (:class:`Bound`) is the time that something may take which is expected to come: an
answer, the end of a rank that was interrupted. Once a bound is over, labkit decides otherwise: the
rank is silent, it has to be freed, it is left behind. On a busy machine what is expected comes
late, so bounds are multiples of one measured unit, the :class:`Pace`: ``BOUND.seconds()`` is the
value below on a machine that is not busy, and up to twenty times as long on one that is.

A **plain number** never stretches. It is a cadence (how often somebody looks), a time that the user
perceives or may set, or a limit of 15 seconds and more. Such a limit is many times what even a busy
machine needs; it tells what has failed from what is slow, and stretching it would only keep a
person waiting.

The pace is measured in the notebook's process. In the others (ranks, controller, warm process)
every bound is the value below. What belongs to the program of an exercise (how late a rank is) is
not here but in that exercise.

Imports nothing: the first process of a rank reads it, which has to start in milliseconds.
"""

from __future__ import annotations


class Pace:
    """How much longer than on an idle machine things take here, as the control channel shows it.

    The unit is the round trip of a question on the control channel of a rank with nothing to do:
    ``runtime/control.py`` measures it when a lab has started and after cells.
    """

    #: Up to this round trip nothing stretches. Measured on two cores with 2 to 16 ranks and nothing
    #: else to do: 0.7 to 6 ms; beside 4 processes that compute: 0.8 to 11 ms, beside 8: 1 to 31 ms,
    #: beside 16: 13 to 152 ms (``LABKIT_LOG=debug`` shows each).
    REFERENCE = 0.01
    #: Nothing stretches by more: a machine as slow as that needs help, not patience.
    MOST = 20.0
    #: So many of the last round trips count, and of them the middle one: on an idle machine, one
    #: of 49 took 47 ms, after a cell that had sent 64 MB to the notebook.
    KEPT = 3

    def __init__(self) -> None:
        self._last: tuple[float, ...] = ()

    def note(self, round_trip: float) -> None:
        """Record a round trip, in seconds."""
        self._last = (*self._last, round_trip)[-self.KEPT :]

    def __repr__(self) -> str:
        return f"bounds are {self.factor:.3g} times as long"

    @property
    def factor(self) -> float:
        """By how much every bound is longer than its least, 1 to 20."""
        if not self._last:
            return 1.0
        middle = sorted(self._last)[(len(self._last) - 1) // 2]  # the shorter of two
        return min(max(1.0, middle / self.REFERENCE), self.MOST)


#: That of this process.
pace = Pace()


class Bound:
    """The time that something may take which is expected to come.

    Parameters
    ----------
    least
        Seconds, on a machine that is not busy.
    """

    __slots__ = ("least",)

    def __init__(self, least: float) -> None:
        self.least = least

    def __repr__(self) -> str:
        return f"Bound({self.least:g})"

    def seconds(self) -> float:
        """Return how long to wait now."""
        return self.least * pace.factor


# -- the notebook asks ranks --------------------------------------------------------------------

#: A rank's answer on its control channel, which comes in milliseconds.
ANSWER = Bound(1.0)
#: The same of ranks that have nothing to do, where one's silence costs all of them their group: on
#: a machine that is suddenly busy, the time that is measured after cells is out of date.
IDLE_ANSWER = Bound(10.0)
#: The same while ranks are being freed: one that cannot answer delays all others.
QUICK_ANSWER = Bound(0.2)
#: A rank's handler of a signal writes down where it stands, in microseconds, unless its process is
#: stopped.
STACK_WRITTEN = Bound(0.2)
#: Between looks at the file in which it does.
STACK_LOOK = 0.01
#: At most this often the round trip of an idle rank is measured, so that cells cost the same.
PACE_MEASURED = 1.0
#: A short function of labkit's on an idle rank.
REMOTE_CALL = 30.0
#: The same once somebody has pressed stop and waits.
REMOTE_CALL_STOPPED = Bound(1.0)

# -- the notebook starts ranks ------------------------------------------------------------------

#: All ranks are connected. Sixteen that import torch on two cores take 40 s.
START = 120.0
#: Between questions to the controller which ranks are there: its notices may have been missed.
ENGINES_ASKED = 0.5
#: The GPUs are counted, the controller runs, a rank is forked: torch is imported before.
FORKED = 120.0
#: Between looks at a file that another process writes, which gives no notice of it.
FILE_LOOK = 0.005
#: Between looks at what ipyparallel's launchers know of their ranks, each a command or more.
LAUNCHER_LOOK = 2.0
#: Ranks of MPI, Slurm or SSH are gone after they were told to end.
EXTERNAL_ENDED = Bound(5.0)
#: Between looks at which of them are left.
EXTERNAL_END_LOOK = 0.02
#: One look at a host by SSH: connect, start Python, find torch.
SSH_LOOK = 30.0
#: One of Slurm's commands: they wait long for a controller that does not answer. Whole seconds.
SLURM_COMMAND = 60
#: A connection within this machine, which is refused or made immediately.
LOOPBACK_CONNECTED = Bound(2.0)
#: A folder without an owner is taken for one that was left behind: a new one is locked by then.
FOLDER_LOCKED = 10.0

# -- the notebook follows what runs -------------------------------------------------------------

#: A cell has this before anybody watches it, so that short ones cost nothing more.
UNWATCHED = 0.2
#: Between looks at the ranks while something runs.
TICK = 0.2
#: Between the two looks that must agree before a deadlock is declared. What is on its way between
#: ranks arrives meanwhile.
CONFIRM = Bound(0.15)
#: To the next look when nothing was found; doubled each time without news, up to the second.
LOOK_AGAIN, LOOK_AGAIN_LONGEST = 0.3, 5.0
#: The longest pause while something is suspected.
LOOK_AGAIN_SUSPECTED = 1.0
#: ``lab.status()``: a rank tells what it waits for once it has stood still for this long.
STOOD_STILL = Bound(0.25)
#: ``lab.status()`` looks for a deadlock: it takes half of this to be certain of one.
FAULT_FOUND = Bound(1.0)
#: How long each of its looks waits for news.
FAULT_TICK = 0.1
#: Before each of the looks at the line at which a busy rank is: one that was just sent something is
#: at none yet.
LINE_LOOKS = (Bound(0.0), Bound(0.05), Bound(0.1))
#: A rank that was answered keeps its turn: in a debugger it asks again immediately.
NEXT_INPUT_REQUEST = Bound(1.0)

# -- the notebook ends what runs: see ``runtime/recovery`` ----------------------------------------

#: Interrupted ranks end by themselves, before they are freed.
INTERRUPTED = Bound(0.25)
#: Freed ranks end by themselves, before they are interrupted too.
FREED = Bound(0.5)
#: They come back after that: where somebody has pressed stop and looks on.
STOPPED = Bound(0.4)
#: They come back where all have to, because they were seen to wait for one another.
STUCK = Bound(4.0)
#: What still waits then is freed once more.
FREED_AGAIN = Bound(0.5)
#: Ranks whose Python has seen an interrupt end, unless their code catches it.
COMING = Bound(2.0)
#: The last output of a rank arrives after its reply. A pause in it of this length, or up to twice
#: as long, counts as its end.
LAST_OUTPUT = Bound(5.0)
#: The same once somebody has pressed stop.
LAST_OUTPUT_STOPPED = Bound(0.5)
#: A process group is formed although somebody has pressed stop: it takes less as a rule, and a
#: group that is half formed has to be formed again.
GROUP_FORMED = Bound(0.5)
#: Ranks end what they are busy with when a broken group has to be repaired for the next cell.
GROUP_FREE = Bound(5.0)

# -- the user waits, or is waited for -----------------------------------------------------------

#: From the first press of stop until a further one cuts whatever runs: something hangs.
FORCE = 5.0
#: A wait notices an interrupt at the latest.
NOTICE = 0.1
#: Somebody who writes a cell waits for suggestions at most.
COMPLETION = 1.0
#: A cell runs before the board of its ranks is shown, and between two looks at them for it.
BOARD = 1.0
#: Two pictures of the ranks, or two samples of what ``lab.watch`` draws, are apart at least: a
#: training is not slowed, and a page that redraws its pictures can be read.
PICTURES = 0.5
#: A suspicion lasts before the stop button is offered.
STOP_OFFERED = 5.0
#: A deadlock is suspected before it ends a cell where nobody looks on (``LABKIT_SUSPECT_SECONDS``).
SUSPECT = 60.0
#: The same for a script of the learner's that is checked.
SUSPECT_SCRIPT = 20.0
#: The trial of an answer, unless its exercise says otherwise.
TRIAL = 20.0
#: Between two things that a learner does for an exercise, before it counts as a pause.
PAUSE = 900.0
#: Other kernels change the file of the learner's progress, in milliseconds each.
PROGRESS_LOCKED = Bound(5.0)
#: Between looks at the files of a class that a teacher watches: thirty take 0.01 s.
CLASS_REFRESH = 10.0
#: A class is watched, unless the teacher says otherwise: a morning.
CLASS_WATCHED = 4 * 3600.0

# -- %%torchrun -----------------------------------------------------------------------------------

#: Between looks at the workers.
WORKERS_LOOK = 0.1
#: A worker that has gone has ended well: else torchrun would have ended all others by then.
WORKER_ENDED_WELL = Bound(1.0)
#: torchrun and all that it started are gone: longer than its owner takes to kill.
TORCHRUN_ENDED = Bound(10.0)
#: In a worker: a look at the main thread that is under way comes to its end.
WORKER_LOOK_ENDED = Bound(5.0)
#: The zygote forks a worker, on a machine that may be busy.
WORKER_FORKED = Bound(10.0)
#: A worker whose script has failed leaves the others time to fail, too: one that does nothing for
#: this long waits for something.
OTHER_IDLE = Bound(0.3)
#: One that computes would have met the error in so much processor time.
OTHER_COMPUTED = Bound(1.0)
#: All of them have this, however little of the machine they get.
OTHERS_ENDED = Bound(5.0)
#: Between looks at them.
OTHERS_LOOK = 0.02
#: A process of a checked script waits to be killed at a step, and how often it looks.
HELD, HELD_LOOK = 60.0, 0.05
#: A node of a checked script goes on when the other has ended: alone it waits for a new one.
NODE_ALONE = Bound(8.0)

# -- processes end ------------------------------------------------------------------------------

#: From SIGTERM to SIGKILL.
TERMINATED = Bound(0.5)
#: A killed process is gone.
KILLED = Bound(10.0)
#: The warm process ends, and all that it has forked.
WARM_ENDED = Bound(10.0)
#: The same while it imports: it does not look at its socket then, and holds nothing.
WARM_ENDED_IMPORTING = Bound(0.1)
#: Between looks at whether a launcher's processes have ended.
ENDED_LOOK = 0.1
#: Descendants that are killed are gone, and how often one looks.
DESCENDANTS_KILLED, DESCENDANTS_LOOK = Bound(5.0), 0.005
#: The notice of a rank's end leaves its process: the controller may be gone too.
NOTICE_SENT = Bound(1.0)

# -- the warm process and the zygote ------------------------------------------------------------

#: A zygote answers a kernel, in some 20 ms; one that is stopped or swapped out may be late.
ZYGOTE_ANSWER = Bound(2.0)
#: The same of one that still imports torch, which is ahead of whoever would begin with it now.
ZYGOTE_IMPORTED = 20.0
#: A zygote ends by itself.
ZYGOTE_ENDED = Bound(2.0)
#: The rest of a request that has begun arrives, and an answer is taken.
FORK_REQUEST = Bound(2.0)
#: News of how a process has ended that has ended.
EXIT_NEWS = Bound(1.0)
#: A wait for a forked process looks whether another thread has noted its end.
FORKED_LOOK = 0.2
#: The kernel lists the sockets of a process, which it does immediately.
SOCKETS_LISTED = Bound(5.0)

# -- controller and engines ---------------------------------------------------------------------

#: Between heartbeats on this machine, and over a network: fewer messages, and a rank is still
#: there after less than a second.
HEARTBEAT, HEARTBEAT_NETWORK = 0.1, 0.25
#: Without a heartbeat an engine counts as gone. Ends are known otherwise and immediately; a
#: heartbeat that is missed on a busy machine is no end.
HEARTBEATS_MISSED = 60.0
#: A client that has asked which engines are there listens to what comes after.
NEWS_HEARD = Bound(1.0)
#: Between looks of the controller whether the kernel lives that started it.
OWNER_LOOK = 0.25
#: The engine's connections are made, which they are long before; one without them is connected by
#: its heartbeat.
ENGINE_CONNECTED = Bound(1.0)
#: The controller answers the registration of a rank of MPI, Slurm or SSH.
REGISTERED = 20.0
#: A rank that has not registered yet writes down where it is. Who waits for it (:data:`START`)
#: reads that at the end of its log.
REGISTRATION_STUCK = 60.0
#: Without a sign of the controller a rank ends: when its connection was closed, and when nothing is
#: heard at all, which a slow network explains better.
CONTROLLER_CLOSED, CONTROLLER_SILENT = Bound(3.0), 25.0
#: A rank of MPI, Slurm or SSH ends: from SIGTERM to SIGKILL.
EXTERNAL_TERMINATED = Bound(2.0)
#: A connection for which no file could be opened is tried again.
NO_ROOM_LOOK = 0.1

# -- on a rank: what the main thread does -------------------------------------------------------

#: Between looks at the main thread.
MAIN_THREAD_LOOK = 0.1
#: The same while a wait goes on that the notebook knows.
KNOWN_WAIT_LOOK = 0.25
#: It goes on looking after the last question.
LOOKS_LINGER = 3.0
#: It lets a question be of which nothing came: its cell has ended.
QUESTION_DROPPED = 60.0
#: Processor time between two looks that labkit's own polling of a device may use, in nanoseconds.
POLLING_NANOSECONDS = 20_000_000
#: Processor time between two looks that does not count, in nanoseconds: threads that wake up now
#: and then (telemetry, gloo's polling) compute nothing.
IDLE_NANOSECONDS = 10_000_000
#: Processor time in which gloo's transport takes all that it could take, in nanoseconds: hundreds
#: of rounds over its connections. If it has moved nothing in them, it moves nothing.
SPINNING_NANOSECONDS = 2_000_000
#: A wait with a shorter limit of its own ends by itself: nobody has to watch it.
WATCHED_LIMIT = 60.0
#: An exact look at the memory is good for this long: the system takes 10 ms for one, in which the
#: process cannot get new memory.
MEMORY_KNOWN = 60.0

# -- on a rank: ending what it waits in ---------------------------------------------------------

#: An interrupt waits for an import at most: half an import cannot be repeated.
IMPORTED = 30.0
#: It is sent again meanwhile.
INTERRUPT_AGAIN = 0.05
#: Processes that a cell has started end after a signal, before the next one is sent.
CHILDREN_ENDED = Bound(1.0)
#: The limit of a receive that is to fail.
RECEIVE_FAILS = 0.001
#: Torch searches for a store by itself, in C++, where the limit is shorter than this.
STORE_SEARCHED = 60.0
#: A longer limit leaves this to torch, for the error that it raises at the end.
STORE_ERROR = 1.0
#: A store is served that a process under torchrun looks for.
STORE_SERVED = Bound(5.0)
#: Between looks for the store's server.
STORE_LOOK = 0.02
#: The server takes a connection, over a network.
STORE_CONNECTED = Bound(5.0)

# -- on a rank: output, devices, trials, recordings -----------------------------------------------

#: Text leaves the rank that nobody flushes.
FLUSHED = 0.1
#: Between looks at what C code has written, and for all of them.
C_OUTPUT_LOOK, C_OUTPUT_READ = 0.0003, Bound(0.1)
#: Between two looks at a device: the first pause, and the longest.
DEVICE_LOOK, DEVICE_LOOK_LONGEST = 0.0002, 0.01
#: NCCL's watchdog looks ten times a second at what is done: in this time it has noted it.
RETIRED = 1.0
#: A pause takes so many times the processor time of the look before it, at least.
DEVICE_LOOK_SHARE = 9
#: Messages of which both ends were posted arrive.
MESSAGES_ARRIVED = Bound(1.0)
#: Ranks of one recording exchange the time.
CLOCKS_COMPARED = Bound(5.0)
#: A recording stops by itself: torch's events of that time still fit in memory.
RECORDING = 5.0

# -- in a recording, nanoseconds ------------------------------------------------------------------

#: The profiler's clock and the flight recorder's may differ.
CLOCKS_APART_NANOSECONDS = 100_000
#: Times of the profiler's trace may be off: 1 to 3 µs were seen.
PROFILER_NANOSECONDS = 5_000
#: Kernels of one piece of work with less than this between them are drawn as one.
KERNEL_GAP_NANOSECONDS = 20_000
#: A rank that came later by this, beyond what the clocks may be off, was late.
LATE_NANOSECONDS = 20_000

# -- exercises and data sets --------------------------------------------------------------------

#: One process trains three epochs on 4,000 images, to compare with: a few seconds, minutes where
#: thirty processes want two cores.
TRAINED_ALONE = 300.0
#: A batch job of the fake Slurm does what it does.
BATCH_JOB = 15.0
#: A job of the fake Slurm that was killed is gone, and how often one looks.
BATCH_KILLED, BATCH_LOOK = Bound(5.0), 0.02
#: RPC on the ranks of a trial opens.
RPC_OPENED = 30.0
#: An answer's call by RPC returns.
RPC_TRIED = Bound(6.0)
#: RPC answers, and closes.
RPC_ANSWER, RPC_CLOSED = Bound(5.0), Bound(1.0)
#: Between looks at calls, and at threads, that are to end.
RPC_LOOK, THREADS_LOOK = 0.01, 0.02
#: A wait on the store of a trial ends that blocks forever.
TRIAL_STORE = Bound(4.0)
#: Ranks of a trial wait for one another, if an answer lets them block forever; and how often they
#: look.
TRIAL_RANKS, TRIAL_RANKS_LOOK = Bound(3.0), 0.01
#: Replicas of a model wait for one another: forever if they run one after the other.
REPLICAS_TOGETHER = Bound(1.0)
#: The first answer of a server that has the data, each further one, and the whole download.
SERVER_FOUND, SERVER_ANSWER, DOWNLOADED = 2.0, 15.0, 240.0
#: A process waits for the one that downloads: longer than that one may take.
DOWNLOADED_ELSEWHERE = DOWNLOADED + 60
#: Every process believes another's failure, so that all ranks of a job get the same data.
FAILURE_BELIEVED = 60.0

# -- tools and hosts ----------------------------------------------------------------------------

#: Torch is imported and looks at the GPUs, for the doctor.
TORCH_ASKED = 90.0
#: The process that was asked is gone when it was killed; a driver may hold it.
TORCH_KILLED = Bound(5.0)
#: A port of this machine takes a connection, for the doctor.
PORT_OPENED = Bound(5.0)
#: A kernel of pytest ends: half after the request, half after SIGTERM, then SIGKILL.
KERNEL_ENDED = 15.0
#: Each step of making or ending a network of hosts.
HOST_STEP = 20.0
#: Between looks at processes of a host that are to end.
HOST_LOOK = 0.01
#: A command on a host, unless its caller says otherwise.
HOST_COMMAND = 60.0

# -- labkit grade -------------------------------------------------------------------------------

#: One cell of a learner's notebook, or one trial of an answer. The longest of the course that is
#: graded takes 20 s on two cores.
GRADED_CELL = 60.0
#: Where its processes wait for a processor, a cell may take so many times as long; at most. An
#: endless loop of four ranks on two cores makes it two by itself.
GRADED_STRETCH = 10.0
#: A whole notebook may take so many times as long: 60 cells of 5 s, or four that never end.
GRADED_CELLS = 5
#: Between looks at the memory that its processes take.
GRADED_LOOK = 0.5
#: Its kernel answers after it has started: ipykernel is imported.
GRADED_KERNEL = 60.0
#: A cell that was interrupted ends, with the ranks that it has kept busy; later, its kernel is
#: given up.
GRADED_INTERRUPTED = Bound(15.0)
#: All processes of a sandbox are gone after they were killed.
GRADED_ENDED = Bound(10.0)
#: A process that compares answers has done so; each trial has ended before.
JUDGED = 120.0

# -- labkit mcp ---------------------------------------------------------------------------------

#: The kernel of an agent answers after it has started: ipykernel is imported.
AGENT_KERNEL = 60.0
#: A tool waits for a cell, unless the agent says otherwise, and at most. Clients give a tool up
#: after a minute, many of them.
AGENT_WAIT, AGENT_WAIT_MOST = 30.0, 600.0
#: The kernel says what each rank does; it waits longer for a rank that does not answer.
AGENT_STATUS = 20.0
#: A cell ends that was interrupted, with the ranks that it has kept busy.
AGENT_INTERRUPTED = Bound(15.0)
