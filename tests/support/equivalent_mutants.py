"""Mutants that do the same as the solution, so that no check can refuse them: per exercise, each
change as :mod:`tests.support.mutants` writes it, with the reason."""

from __future__ import annotations

EQUIVALENT: dict[str, dict[str, str]] = {
    "01-1": {
        "dist.recv(before, src=rank - 1) → dist.recv(before)": "only one rank sends to this one",
    },
    "02-1": {
        "both = torch.stack([samples.sum(), torch.tensor(len(samples) * 1.0, device=device)]) → "
        "both = torch.stack([samples.sum(), torch.tensor(len(samples) / 1.0, device=device)])": (
            "one divides as it multiplies"
        ),
    },
    "04-2": {
        "dist.broadcast(first, src=0) → dist.broadcast(first, src= 1)": (
            "every rank's vector will do to compare with"
        ),
    },
    "07-1": {
        "return 2.0 ** math.floor(math.log2(65504 / top.item())) → "
        "return 2.0 ** math.floor(math.log2(65504 // top.item()))": "it rounds down in any case",
    },
    "07-3": {
        "dist.all_reduce(flag, op=dist.ReduceOp.MAX) → dist.all_reduce(flag)": (
            "a sum of flags is positive where their maximum is"
        ),
    },
    "09-1": {
        "kind, grad = pieces[0].device.type, torch.is_grad_enabled() → "
        "kind, grad = pieces[ -1].device.type, torch.is_grad_enabled()": (
            "all pieces are on devices of one type"
        ),
    },
    "10-1": {
        "net.load_state_dict(torch.load(path, map_location=device, weights_only=True)) → "
        "net.load_state_dict(torch.load(path, map_location=device))": "True is the default",
    },
    "10-3": {
        "torch.load(os.path.join(folder, match[0]), weights_only=True) → "
        "torch.load(os.path.join(folder, match[0]))": "True is the default",
    },
    "11-1": {
        "places = combinations(range(1, len(costs)), p - 1) → "
        "places = combinations(range( 0, len(costs)), p - 1)": (
            "an empty stage makes another one longer, so it is never best"
        ),
    },
    "12-4": {
        "now = torch.load(path, weights_only=True) → now = torch.load(path)": (
            "True is the default"
        ),
    },
}
