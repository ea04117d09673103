"""Mutants that do the same as the solution, so that no check can refuse them: per exercise, each
change as :mod:`tests.support.mutants` writes it, with the reason."""

from __future__ import annotations

#: Of the file of 09-4: what it prints, how it loads, and how many processes share the GPUs.
LOSS_LINE = 'f"epoch {epoch + 1}: loss {total.item() / BATCH_SIZE / len(loader):.3f}"'
LOADED = "map_location=device, weights_only=True"
#: Of 11-1.
NET_LOADED = 'model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))'
#: Of 09-1 and 09-2: how items are split and read.
SEEDED = "generator = torch.Generator().manual_seed(0)  # the same on every rank"
DEALT = "loader = DataLoader(train_set, batch_size=4, sampler=sampler)"
TESTED = "return dealt, items(DataLoader(test_set, batch_size=4, sampler=test_sampler))"
TESTS = "test_sampler = DistributedSampler(test_set, shuffle=False)"
SHARED = "for pixels, labels in DataLoader(share, batch_size=100):"

#: Of the files of 09-4 and 19-4.
SCRIPT = {
    **dict.fromkeys(
        (
            f"print({LOSS_LINE}) → print({other})"
            for other in (
                LOSS_LINE.replace("epoch + 1", "epoch - 1"),
                LOSS_LINE.replace("epoch + 1", "epoch + 2"),
                LOSS_LINE.replace("epoch + 1", "epoch + 0"),
                *(
                    LOSS_LINE.replace(f"/ {by}", f"{operator} {by}")
                    for by in ("BATCH_SIZE", "len")
                    for operator in ("*", "//")
                ),
            )
        ),
        "what is printed is not asked for",
    ),
    **dict.fromkeys(
        (
            f"print({LOSS_LINE}) → pass",
            "total += loss.detach() → pass",
            "dist.all_reduce(total) → pass",
        ),
        "it is for what is printed, which is not asked for",
    ),
    **dict.fromkeys(
        (
            f'parser.add_argument("--epochs", type=int, default=2) → {other}'
            for other in (
                'parser.add_argument("--epochs", type=int, default= 3)',
                'parser.add_argument("--epochs", type=int, default= 1)',
                "parser.add_argument('--epochs', type=int)",
            )
        ),
        "the option is given",
    ),
    'device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) → pass': "no GPU here",
    "torch.cuda.set_device(device) → pass": "no GPU here",
    f"state = torch.load(path, {LOADED}) → state = torch.load(path, "
    "weights_only=True)": "no GPU here",
    f"state = torch.load(path, {LOADED}) → state = torch.load(path, "
    "map_location=device)": "True is the default",
    f"state = torch.load(path, {LOADED}) → state = torch.load(path, "
    "map_location=device, weights_only=False)": "the file holds nothing but weights",
    "dist.destroy_process_group() → pass": "the process ends",
    **dict.fromkeys(
        ('"""Replace the file: a reader finds the whole new one or the whole old one.""" → pass',),
        "a docstring",
    ),
}

EQUIVALENT: dict[str, dict[str, str]] = {
    "01-1": {
        "dist.recv(before, src=rank - 1) → dist.recv(before)": "only one rank sends to this one",
    },
    "02-2": {
        "both = torch.stack([samples.sum(), torch.tensor(len(samples) * 1.0, device=device)]) → "
        "both = torch.stack([samples.sum(), torch.tensor(len(samples) / 1.0, device=device)])": (
            "one divides as it multiplies"
        ),
    },
    "05-1": {
        "dist.broadcast(first, src=0) → dist.broadcast(first, src= 1)": (
            "every rank's vector will do to compare with"
        ),
    },
    "07-3": {
        'blocked = timeline.seconds("blocked", r) if kind == "backward" else 0 → '
        'blocked = timeline.seconds("blocked", r) if kind == "backward" else 1': (
            "the same second is taken from each rank"
        ),
        'blocked = timeline.seconds("blocked", r) if kind == "backward" else 0 → '
        'blocked = timeline.seconds("blocked", r) if kind == "backward" else -1': (
            "the same second is given to each rank"
        ),
    },
    "08-2": {
        "dist.all_reduce(flag, op=dist.ReduceOp.MAX) → dist.all_reduce(flag)": (
            "a sum of flags is positive where their maximum is"
        ),
    },
    "09-1": {
        **{
            f"{SEEDED} → {SEEDED.replace('(0)', f'( {seed})')}": "any seed, the same on all ranks"
            for seed in (1, -1)
        },
        **{
            f"{old} → {old.replace('batch_size=4', f'batch_size= {size}')}": "batches are joined"
            for old in (DEALT, TESTED)
            for size in (3, 5)
        },
        **{
            f"{old} → {old.replace(' batch_size=4,', '')}": "batches are joined"
            for old in (DEALT, TESTED)
        },
        **{
            f"{TESTS} → {new}": "tests may come in any order"
            for new in (TESTS.replace("False", "True"), TESTS.replace(", shuffle=False", ""))
        },
        "sampler = DistributedSampler(train_set, shuffle=True) → "
        "sampler = DistributedSampler(train_set)": "it shuffles by default",
    },
    "09-2": {
        f"{SHARED} → {SHARED.replace('=100', f'= {size}')}": "counts do not depend on batches"
        for size in (99, 101)
    }
    | {f"{SHARED} → {SHARED.replace(', batch_size=100', '')}": "counts do not depend on batches"},
    "09-4": {
        **SCRIPT,
        'parser.add_argument("--save", type=Path, default=Path("my_ddp.pt")) → '
        "parser.add_argument('--save', type=Path)": "the option is given",
        '"""Train a small network: torchrun --standalone --nproc-per-node=2 my_ddp.py '
        '--epochs=2""" → pass': "a docstring",
    },
    "11-1": {
        f"{NET_LOADED} → model.load_state_dict(torch.load(path, map_location='cpu'))": (
            "True is the default"
        ),
        f"{NET_LOADED} → "
        'model.load_state_dict(torch.load(path, map_location="cpu", weights_only=False))': (
            "the file holds nothing but weights"
        ),
    },
    "11-3": {
        "torch.load(os.path.join(folder, match[0]), weights_only=True) → "
        "torch.load(os.path.join(folder, match[0]))": "True is the default",
    },
    "12-1": {
        "kind, grad = pieces[0].device.type, torch.is_grad_enabled() → "
        "kind, grad = pieces[ -1].device.type, torch.is_grad_enabled()": (
            "all pieces are on devices of one type"
        ),
    },
    "13-1": {
        "places = combinations(range(1, len(costs)), p - 1) → "
        "places = combinations(range( 0, len(costs)), p - 1)": (
            "an empty stage makes another one longer, so it is never best"
        ),
    },
    "15-1": {
        "return fully_shard(net, mesh=mesh) → return fully_shard(net)": (
            "the net's own group is empty, and the default mesh has all ranks"
        ),
    },
    "19-4": {
        **SCRIPT,
        'parser.add_argument("--save", type=Path, default=Path("digits.pt")) → '
        "parser.add_argument('--save', type=Path)": "the option is given",
        '"""Train a small network on any number of nodes; go on from the file, if there is '
        'one.""" → pass': "a docstring",
        "dist.barrier()  # all have looked for the file: now it may change → "
        "pass  # all have looked for the file: now it may change": (
            "an epoch takes longer than to load"
        ),
    },
    "19-5": {
        "#SBATCH --job-name=train → ": "a name for the queue",
        "#SBATCH --output=%x-%j.out → ": "where the output goes is not asked for",
        "#SBATCH --ntasks-per-node=1 → ": "one task per node is the default",
        '--rdzv-id="$SLURM_JOB_ID" \\ → ': "the port differs from job to job already",
    },
}
