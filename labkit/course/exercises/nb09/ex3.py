"""Exercise 09-3: convert the model, wrap it, and train it under autocast, in the right order."""

from __future__ import annotations

from ...exercise import Exercise, Mistake
from .facts import fact, has
from .mixed import STEPS, expected, trial

EXERCISE = Exercise(
    id="09-3",
    title="Convert, wrap, cast",
    answer="train_mixed",
    setup="""
        import torch.nn.functional as F
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP


        def to_group_norm(net):
            for name, child in net.named_children():
                if isinstance(child, nn.BatchNorm2d):
                    setattr(net, name, nn.GroupNorm(4, child.num_features).to(device))
                else:
                    to_group_norm(child)
            return net
    """,
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "DDP waits for gradients of layers that no longer exist: the model was converted "
            "after it had been wrapped. Convert first, then wrap.",
            raises=r"!tensors\.empty\(\) INTERNAL ASSERT FAILED",
        ),
        Mistake(
            "The model still has BatchNorm, whose statistics are those of one rank's images. Here "
            "it has to be converted: call to_group_norm before you wrap.",
            when=has(norm_layer="BatchNorm2d"),
        ),
        Mistake(
            "The optimizer holds the parameters of the layers that were replaced: create it "
            "after the conversion.",
            when=has(norm_layer_trained=False, norm_layer="GroupNorm", convolution_trained=True),
        ),
        Mistake(
            "Each rank has trained its own model: DDP averages gradients only where the wrapped "
            "model is called, not the one inside it, and not under no_sync().",
            when=has(equal_on_every_rank=False),
        ),
        Mistake(
            "The model has not been trained: each batch needs a forward pass, backward() and "
            "optimizer.step().",
            when=has(autocast_in_forward=False, convolution_trained=False),
        ),
        Mistake(
            "The forward pass runs in float32: compute the scores inside torch.autocast.",
            when=has(autocast_in_forward=False),
        ),
        Mistake(
            "backward() is inside the autocast block. It uses the types of the forward pass "
            "anyway: end the block before it.",
            when=has(autocast_in_backward=True),
        ),
        Mistake(
            "autocast is not asked for bfloat16. In float16 small gradients vanish unless a "
            "scaler is used: pass dtype=torch.bfloat16.",
            when=fact("type of autocast", lambda kind, n: kind != "bfloat16"),
        ),
        Mistake(
            "The loss is computed outside autocast, in 16 bits: move it into the block, where "
            "autocast computes cross entropy in float32.",
            when=has(type_of_the_loss="bfloat16"),
        ),
        Mistake(
            "The model is wrapped more than once. Create DDP and the optimizer once, before the "
            "loop: DDP's constructor sends all weights to all ranks, and a new optimizer has no "
            "state.",
            when=fact("models wrapped", lambda times, n: times > 1),
        ),
        Mistake(
            "It returns the model inside DDP: return the wrapped one, which DDP(…) gave.",
            when=has(returns_the_wrapped_model=False, models_wrapped=1),
        ),
        Mistake(
            f"Take one step per pair in batches: {STEPS} here.",
            when=fact("steps", lambda steps, n: steps != STEPS),
        ),
        Mistake(
            "No weight has changed: the optimizer never takes its step, takes it before "
            "backward(), or holds no parameter of this model.",
            when=has(convolution_trained=False),
        ),
        Mistake(
            "The weights differ from those that one process gets from all images. Compare the "
            "loss (F.cross_entropy of scores and labels, as it is), the optimizer (SGD with lr=0.1 "
            "and nothing else), and each step: zero_grad(), backward(), step().",
            when=has(weights_as_one_process_has=False, equal_on_every_rank=True),
        ),
    ),
    hints=(
        "What replaces parameters comes before DDP; what uses them comes after it.",
        "to_group_norm(model), then DDP(model), then the optimizer from its parameters.",
        "In the loop: zero_grad; with torch.autocast(device.type, dtype=torch.bfloat16): loss = "
        "…; and outside the block loss.backward() and step().",
    ),
)
