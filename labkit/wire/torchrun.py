"""Name what the kernel, torchrun and its workers leave for one another in a private folder."""

from __future__ import annotations

#: The cell's text as a script; the workers' files; how torchrun has ended.
SCRIPT, LOGS, REPORT = "cell.py", "logs", "report.json"
#: Beside the files of a worker: its rank, and the error that it ended with.
RANK, ERROR = "rank", "raised.json"
#: Where torchrun tells a worker which file, beside those, is for its error.
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
