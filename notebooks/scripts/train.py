"""Train a network on any number of processes: a script to take home, with digits.py.

python train.py                                       one process
torchrun --standalone --nproc-per-node=4 train.py     four on this machine
torchrun ... train.py --save=digits.pt                goes on from the file, if there is one
"""

import argparse
import itertools
import os
import signal
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from digits import DATA, flops_of, make_model, make_optimizer, read_digits, reseed, sums_of
from torch import nn, profiler
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Subset

WARMUP, COOLDOWN = 30, 60  # steps: the learning rate rises to --lr, stays, and falls to 0
MANY = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # set by srun and mpirun


def read_options():
    parser = argparse.ArgumentParser(description="Train on MNIST with any number of ranks.")
    add = parser.add_argument_group("what is trained: a run that goes on has the same").add_argument
    add("--batch-size", type=int, default=64, help="examples per step, of all ranks")
    add("--lr", type=float, default=3e-3, help="learning rate")
    add("--lr-batch", type=int, help="--lr is for this batch size: scale it by the square root")
    add("--precision", choices=("float32", "tf32", "bfloat16"), default="float32")
    add("--seed", type=int, default=0)
    fixed = list(vars(parser.parse_args([])))
    add = parser.add_argument_group("how far and how it is run").add_argument
    add("--epochs", type=float, default=6, help="a fraction is allowed: 0.5")
    add("--accumulate", type=int, default=1, help="micro-batches per step")
    add("--compile", action="store_true")
    add("--workers", type=int, default=0, help="processes per rank that load data")
    add("--data", type=Path, default=DATA)
    add("--save", type=Path, metavar="FILE", help="go on from it; SIGTERM writes it, too")
    add("--save-every", type=int, default=100, metavar="STEPS")
    add("--log-every", type=int, default=20, metavar="STEPS")
    add("--profile", metavar="FOLDER", help="write a trace of steps 11 to 13 for each rank")
    add("--peak-tflops", type=float, help="of one GPU: log the share that is used (MFU)")
    options = parser.parse_args()
    options.fixed = {name: getattr(options, name) for name in fixed}
    return options


def join():
    """Form the process group, unless something would go wrong silently; return the device."""
    if "RANK" not in os.environ and any(int(os.environ.get(name, 1)) > 1 for name in MANY):
        raise SystemExit("Each of these processes would train alone: start one torchrun per node.")
    where = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    gpus, processes = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if gpus == 0:
        dist.init_process_group("gloo", **where)
        return torch.device("cpu")
    if gpus < processes:
        found = f"{processes} processes on this node, but this one sees {gpus} GPUs"
        raise SystemExit(f"{found}: let each see all, start fewer, or set CUDA_VISIBLE_DEVICES=''.")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, **where)
    return device


def indices_after(step, epoch):
    """Yield this rank's indices of the steps after ``step``, without end."""
    for number in itertools.count(step // len(epoch)):
        epoch.sampler.set_epoch(number)  # a new order in each epoch
        yield from itertools.islice(epoch, max(step - number * len(epoch), 0), None)


@torch.no_grad()
def evaluate(model, data, device, autocast):
    """Return the mean loss and the accuracy; each example is counted once, on one rank."""
    for buffer in model.buffers():  # BatchNorm's differ between ranks, and rank 0's are saved
        dist.broadcast(buffer, src=0)
    share = Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
    sums = torch.zeros(2, device=device)
    model.eval()
    for batch in DataLoader(share, batch_size=250):
        with autocast():
            sums += torch.stack(sums_of(model, batch, device))
    model.train()
    dist.all_reduce(sums)  # sums, not means: shares may differ in length
    return (sums / len(data)).tolist()


def save(options, model, optimizer, step):
    """Write on rank 0 only, all or nothing."""
    if dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        with open(f"{options.save}.part", "wb") as file:
            torch.save(state | {"options": options.fixed}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, options.save)


def load(options, model, optimizer):
    """Read the checkpoint on every rank; return its step, 0 if there is none yet."""
    path, steps, state = options.save, [None] * dist.get_world_size(), {"step": 0}
    if path and path.exists():
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["options"] != options.fixed:
            raise SystemExit(f"{path} is of {state['options']}: go on with these, or name another.")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    dist.all_gather_object(steps, state["step"])
    if len(set(steps)) > 1:
        raise SystemExit(f"{path} is not the same file on every rank: steps {steps}.")
    return state["step"]


def train(options):
    device = join()
    torch.set_float32_matmul_precision("high" if options.precision == "tf32" else "highest")
    rank, ranks, batch_size = dist.get_rank(), dist.get_world_size(), options.batch_size
    say = partial(print, flush=True) if rank == 0 else lambda *_: None
    data, test_data = (read_digits(part, options.data) for part in ("train", "t10k"))
    if batch_size % (parts := ranks * options.accumulate) or not 0 < batch_size <= len(data):
        raise SystemExit(f"--batch-size must be a multiple of {parts} and at most {len(data):,}.")
    torch.manual_seed(options.seed)
    model = make_model().to(device)
    optimizer = make_optimizer(model)
    lr = options.lr * (batch_size / (options.lr_batch or batch_size)) ** 0.5
    done = load(options, model, optimizer)
    net = DDP(model, gradient_as_bucket_view=True)  # every rank has rank 0's weights from here on
    if options.compile:
        net.compile()
    autocast = partial(torch.autocast, device.type, torch.bfloat16, options.precision == "bfloat16")
    sampler = DistributedSampler(data, seed=options.seed, drop_last=True)
    epoch = BatchSampler(sampler, batch_size // ranks, drop_last=True)
    steps = round(options.epochs * len(epoch))
    how = {"num_workers": options.workers, "pin_memory": device.type == "cuda"}
    batches = iter(DataLoader(data, batch_sampler=indices_after(done, epoch), **how))
    trace, stop, stopped = nullcontext(), [], 0
    if options.profile:
        when = profiler.schedule(wait=9, warmup=1, active=3, repeat=1)
        write = profiler.tensorboard_trace_handler(options.profile, f"rank{rank}")
        trace = profiler.profile(schedule=when, on_trace_ready=write)
    peak = ranks * 1e12 * (options.peak_tflops or 0) / flops_of(model, data, device)  # examples/s
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    say(f"{ranks} ranks on {device.type}, {done:,} of {steps:,} steps done")
    sums, waited, logged, since = torch.zeros(3, device=device), 0.0, done, time.perf_counter()
    with trace:
        for step in range(done + 1, steps + 1):
            reseed(options.seed, step, rank)
            for group in optimizer.param_groups:
                group["lr"] = lr * min(step / WARMUP, (steps + 1 - step) / COOLDOWN, 1)
            begin = time.perf_counter()
            batch = next(batches)
            waited += time.perf_counter() - begin
            parts = zip(*(tensor.chunk(options.accumulate) for tensor in batch), strict=True)
            for count, part in enumerate(parts, start=1):
                with nullcontext() if count == options.accumulate else net.no_sync():
                    with autocast():
                        loss = sums_of(net, part, device)[0] * ranks / batch_size
                    loss.backward()  # that of the last part averages over the ranks
                sums[0] += loss.detach()
            norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            ends = step % len(epoch) == 0 or step == steps  # an epoch
            if ends or step % options.log_every == 0:
                sums[1], sums[2] = waited, len(stop)
                dist.all_reduce(sums)  # nowhere else do the ranks wait for the device
                loss, waited, stopped = (sums / ranks).tolist()
                seconds, number = time.perf_counter() - since, step - logged
                speed = number * batch_size / seconds
                mfu = f", MFU {speed / peak:.1%}" if peak else ""
                say(
                    f"step {step:,}: loss {loss / number:.4f}, gradient norm {norm:.2f}, "
                    f"{speed:,.0f} examples/s, {waited / seconds:.0%} waiting for data{mfu}"
                )
                if ends:
                    loss, correct = evaluate(model, test_data, device, autocast)
                    say(
                        f"epoch {step / len(epoch):g}: test loss {loss:.4f}, accuracy {correct:.2%}"
                    )
                sums, waited, logged, since = sums.zero_(), 0.0, step, time.perf_counter()
            if options.save and (stopped or step == steps or step % options.save_every == 0):
                save(options, model, optimizer, step)
            if options.profile:
                trace.step()
            if stopped:
                say(f"SIGTERM: stopped after step {step:,}.")
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.set_start_method("forkserver")  # forked workers would have NCCL's locks
    record(train)(read_options())  # torchrun then shows the first error of a rank
