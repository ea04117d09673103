"""Say which function serves each errand of the notebook.

The warm process imports this, and by it all that runs on a rank: every fork has it then.
"""

from __future__ import annotations

from ..wire import errands
from . import calls, debugger_internals, ipython_internals, names, process_group, setup, spare_files
from .profile import profiler
from .torch_internals import backend_plugins
from .torch_internals import names as torch_names
from .trial import trial

errands.describe.served_by(setup.describe)
errands.assign.served_by(setup.assign)

errands.find_address.served_by(process_group.find_address)
errands.address_towards.served_by(process_group.address_towards)
errands.address.served_by(process_group.address)
errands.open_store.served_by(spare_files.lent_to(process_group.open_store))
errands.reserve_port.served_by(process_group.reserve_port)
errands.export.served_by(process_group.export)
errands.join.served_by(spare_files.lent_to(process_group.join))
errands.leave.served_by(process_group.leave)

errands.call.served_by(calls.call)
errands.pull.served_by(calls.pull)
errands.push.served_by(calls.push)
errands.delete.served_by(calls.delete)
errands.list_names.served_by(names.list_names)

errands.complete.served_by(names.complete)
errands.explain.served_by(names.explain)

errands.prepare_trial.served_by(trial.prepare)
errands.run_trial.served_by(trial.run)
errands.may_fix_size.served_by(trial.may_fix_size)
errands.end_trial.served_by(trial.end)

errands.record.served_by(profiler.record_call)

# Look at all names once here, not on every rank.
backend_plugins.installed()
debugger_internals.check()
ipython_internals.check()
torch_names.check()
