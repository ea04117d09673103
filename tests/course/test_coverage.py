"""Every system that the course teaches stands in a code cell that has been run.

The rows are those of the course's plan; ``notebooks/README.md`` is the learner's index to them.
A row is done when each of its calls stands in a code cell of its notebook that was executed.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

from labkit.course import material
from tests.support.notebook_rules import link_problem, links

#: notebook -> row -> what stands in its code cells, or in those of its second half
ROWS = {
    "01_point_to_point": {
        "B1 send and recv": ["dist.send(", "dist.recv("],
        "B2 isend and irecv": ["dist.isend(", "dist.irecv(", ".wait()", "is_completed"],
        "B3 both send first": ["batch_isend_irecv"],
        "B5 latency and bandwidth": ["message_cost(", "fit_alpha_beta("],
    },
    "02_collectives": {
        "C1 the nine": [
            "dist.broadcast(",
            "dist.reduce(",
            "dist.all_reduce(",
            "dist.scatter(",
            "dist.gather(",
            "dist.all_gather(",
            "dist.reduce_scatter(",
            "dist.all_to_all(",
            "dist.barrier(",
        ]
    },
    "03_ring_allreduce": {
        "D1 the naive ring": ["isend", "recv"],
        "D2 chunks": ["chunk", "reduce_scatter", "all_gather"],
        "D3 against dist.all_reduce": ["dist.all_reduce(", "bandwidth("],
        "D4 through one rank": ["def through_rank_0(", "costs[name]"],
    },
    "04_process_groups": {
        "A1 the hand-made template": ["MASTER_ADDR", "WORLD_SIZE", "init_process_group", "rank"],
        "A1 as a script": ["%%torchrun", "torch.cuda.set_device(", "device_id="],
        "A2 env://": ["env://", "init_process_group()", "rank=rank, world_size=world_size"],
        "A7 status": [
            "is_available",
            "is_initialized",
            "is_torchelastic_launched",
            "get_backend",
            "get_rank",
            "get_world_size",
            "Backend",
        ],
        "A3 a port that is taken": ["EADDRINUSE"],
        "A12 destroy": ["destroy_process_group"],
        "A13 rows and columns": ["init_device_mesh(", "group=row", "group=column"],
        "A11 the default timeouts": ["default_pg_timeout"],
        "A11 a timeout of three seconds": ["timeout=timedelta(seconds=3)"],
    },
    "05_sync_sgd": {
        "F1 partitioner with a shared seed": [
            "def partition(",
            "manual_seed(seed)",
            "128 // world_size",
        ],
        "F2 average_gradients": [
            "def average_gradients(",
            "dist.all_reduce(p.grad)",
            "dist.broadcast(p.data",
        ],
        "F3 MNIST, equal to one process": [
            "mnist_tensors",
            "assert error < 1e-12",
            "accuracy >= 0.9",
        ],
        "F4 one flat tensor": ["def average_flat(", "torch.cat("],
    },
    "06_hide_the_communication": {
        "F4 buckets, overlap": [
            "def finish(bucket",
            "def cut(net, cap)",
            "torch.cat(",
            "register_post_accumulate_grad_hook",
            "async_op=True",
            "end_of_step(",
        ],
        "F5 a DDP of one's own": ["%%torchrun", "scripts.miniddp import DDP", "model.finish()"],
    },
    "07_ddp": {
        "G4 no_sync": ["no_sync()"],
        "G1 basic use, the constructor": [
            "DDP(model)",
            "same(weights(model))",
            "what I had before",
        ],
        "G2 buckets, overlap": ["lab.timeline(", "bucket_cap_mb=0.02", "overlap()"],
        "G2 hooks, one order of buckets": ["register_post_accumulate_grad_hook", "def reducer("],
        "G3 equal to one process": ["num_replicas=1", "assert difference < 1e-4", "fair_loss"],
        "G6 meeting points": ["time.sleep(0.1)", "if rank < world_size - 1"],
        "where it pays": ["set_num_threads(", "scaling(", 'gain("2 ranks", 32) >= 1.5'],
        "one rule for testing": ["ddp.module.eval()", "torch.no_grad()", "ddp.state_dict()"],
    },
    "08_mixed_precision": {
        "I1 autocast": [
            "with torch.autocast(",
            "@torch.autocast(",
            "conv2d",
            "softmax",
            "layer_norm",
            "cross_entropy",
            ".half()",
        ],
        "I2 underflow and GradScaler": [
            "gradient_sizes(",
            "GradScaler(device.type",
            "scaler.scale(",
            "scaler.step(",
            "scaler.update()",
            "skipped",
            "schedule.step()",
            "scaler.unscale_(",
            "clip_grad_norm_",
            "scaler.step(draw)",
            "scaler.step(read)",
        ],
        "I3 bf16 without a scaler": ["torch.bfloat16", "torch.finfo", '"bf16": (bf16, False)'],
        "H5 the loss scaled": ["scaler.scale(", "scaler.step(", "scaler.update()"],
        "I4 scaler state": ["scaler.state_dict()", "fresh.load_state_dict(saved)"],
        "I5 memory and time in DDP": [
            "saved_tensors_hooks",
            "race(kinds",
            "max_memory_allocated",
            "time_and_memory(",
        ],
    },
    "09_training_recipe": {
        "H1 sampler, set_epoch, generators, workers": [
            "DistributedSampler(",
            "set_epoch(",
            "shuffle=False",
            "torch.Generator().manual_seed(",
            "num_workers=2",
        ],
        "H2 one rank speaks, all reduce": [
            "if rank == 0:",
            "dist.all_reduce(loss)",
            "dist.all_reduce(total)",
            "torch.save(",
        ],
        "H3 learning-rate scaling": ["BATCHES, RATES =", 'group["lr"] = rate'],
        "H5 six broken recipes": [
            "init_process_group",
            "destroy_process_group",
            "convert_sync_batchnorm",
            "DDP(to_group_norm(make_net()))",
            "torch.autocast",
            "random_split(",
            "torch.save(",
            "dist.all_reduce(counts)",
        ],
        "H6 MNIST, to an accuracy": ["scripts/train.py --epochs=2"],
    },
    "11_checkpointing": {
        "J1 save, barrier, map_location": [
            "torch.save(state, path)",
            "dist.barrier()",
            "map_location=device",
            "pause=let_others_go",
            "save_on_every_rank(",
            "torch.serialization.location_tag",
            '{"cuda:64": str(device)}',
            "consume_prefix_in_state_dict_if_present(",
            '"mmap": True',
        ],
        "J2 whole state, bit for bit": [
            "set_epoch",
            "get_rng_state",
            "set_rng_state",
            "torch.amp.GradScaler(",
            "CosineAnnealingLR(",
            "all(map(torch.equal, straight, resumed))",
            "restore(path, without=part)",
        ],
        "J3 killed save, weights_only, SIGTERM": [
            "os.replace(",
            "os.fsync(",
            "signal.SIGKILL",
            "on_a_full_disk",
            "__reduce__",
            "weights_only=weights_only",
            "signal.SIGTERM",
            "--save-every=20",
        ],
    },
    "12_data_parallel": {
        "E1 one GPU, DP or DDP": ["def choose(", '"one GPU"', '"FSDP"', "DDP with model parallel"],
        "E2 DataParallel and its splits": ["nn.DataParallel(", "batch_size=30", "(use(8), use(2))"],
        "E3 the four steps": [
            "def scatter(",
            "def replicate(",
            "def parallel_apply(",
            "def gather(",
        ],
        "E4 interpreter and device 0": [
            "ThreadPoolExecutor(2)",
            "time.process_time()",
            "traffic[source, target] +=",
            "held =",
        ],
        "E5 what survives": [
            "register_buffer",
            "self.rows +=",
            "register_forward_hook",
            "register_full_backward_hook",
            "nn.BatchNorm2d(",
            "spectral_norm(",
            "src_device_obj",
        ],
        "E6 DP against DDP": ["DDP(", "def with_dp(", "def with_ddp("],
    },
    "13_model_parallel": {
        "K1 a model over two devices in DDP": [
            "TwoHalves",
            "hidden.to(second)",
            "DDP(TwoHalves(*pair)",
            "== pair[1]",
            "(2 * rank + k) % gpus",
            "device_ids=pair",
        ],
        "K2 pipeline, micro-batches, bubble": [
            "dist.P2POp(dist.isend",
            "dist.batch_isend_irecv(",
            ".chunk(m)",
            "gpipe(",
            "one_f_one_b(",
            "Schedule1F1B",
            "labkit.figures.pipelines(",
            "labkit.figures.bubble(",
            "idle(",
        ],
        "K3 data × model, fully_shard": [
            "init_device_mesh",
            'mesh_dim_names=("data", "model")',
            "group=group",
            "register_hook(",
            "parallelize_module(",
            "fully_shard(",
            "to_local()",
        ],
    },
    "15_fsdp": {
        "J4 torch.distributed.checkpoint": [
            "dcp.save(",
            "dcp.load(",
            "dcp.async_save(",
            "get_state_dict(",
            "set_state_dict(",
            "labkit.start(2",
            "sharded(",
        ],
        "K3 fully_shard in depth": [
            "def per_layer(",
            "def root_alone(",
            "over_a_step(",
            "reshard_after_forward=choice",
            "set_custom_reduce_scatter(",
            'torch.device("meta")',
            "net.to_empty(",
            "set_model_state_dict(",
            "MixedPrecisionPolicy(",
            "checkpoint(block",
            'mesh_dim_names=("replicate", "shard")',
            "bytes_per_parameter(",
        ],
        "J3 a pickle in a sharded checkpoint": [
            "__reduce__",
            "read_metadata()",
            "dcp_to_torch_save(",
        ],
    },
    "19_launchers_torchrun": {
        "L1 one script, four ways": [
            "--way=Process",
            "--way=spawn",
            "-m torch.distributed.launch",
            "%torchrun --standalone",
            "mp.spawn(work, args=",
            "scripts/old.py",
            "--world-size=3",
            "--late",
            'NCCL_DEBUG="INFO"',
        ],
        "L2 torchrun's options": [
            "--nproc-per-node",
            "--nnodes=2",
            "--node-rank",
            "--master-addr",
            "--master-port",
            "--rdzv-backend=c10d",
            "--max-restarts",
            "--monitor-interval",
            "--standalone",
            "--tee=3",
            "--log-dir",
            "def rank_of",
        ],
        "L3 two nodes, 3 + 4": [
            "two_nodes()",
            "--rdzv-endpoint",
            "for n in (3, 4)",
            "CUDA_VISIBLE_DEVICES",
        ],
        "L4 elastic": [
            "signal.SIGKILL",
            "scripts/train.py",
            "--save-every=5",
            "scripts/elastic.py",
            "--nnodes=1:2",
            "my_elastic.py",
        ],
        "L5 Slurm": [
            "scripts/train.sbatch",
            '"sbatch --wait',
            "scontrol requeue",
            "SLURM_PROCID",
        ],
        "L6 local rank": ["scripts/one_rank.py", "wrong.txt", "right.txt"],
        "L7 downloads": ["race(", "os.replace(draft, path)", "def download_once"],
    },
    "20_scaling_out": {
        "M2 which tool for which step": [
            "nn.DataParallel",
            '"DDP": DDP',
            "fully_shard(layer, mesh=mesh)",
            "%torchrun --standalone",
            "--max-restarts=1",
            "def agrees(",
        ],
        "M3 ipyparallel's own launchers": [
            '{"engines": "mpi"}',
            '{"engines": "slurm"}',
            '"SSHEngineSetLauncher"',
            "labkit.start(n, **settings)",
            "lab.run(first_cells)",
        ],
        "M4 a cost model": [
            "fit_alpha_beta(",
            "def ring(",
            "def flat_ring(",
            "def tree(",
            "def two_rings(",
            "def two_levels(",
            "def forecast(",
            "a prediction",
            "hosts.network(2, rate=",
            "lab.timeline(",
        ],
    },
    "23_rendezvous_and_backends": {
        "A3 tcp://": ["tcp://"],
        "A4 file://": ["file://"],
        "A5 explicit store": ["store=", "FileStore", "TCPStore", "PrefixStore"],
        "A6 TCPStore as a key-value store": [
            ".set(",
            ".get(",
            ".add(",
            ".wait(",
            "compare_set",
            "delete_key",
            "num_keys",
            "timeout",
        ],
        "A8 backend, operation, device": ["gloo", "nccl", "mpi", "ucc", "dist.reduce_scatter("],
        "A9 which backend": ["cpu:gloo,cuda:nccl"],
        "A10 MPI": ['"mpi"'],
        "A13 sub-groups": ["new_group", "init_device_mesh", "group_src="],
    },
    "24_collectives_in_depth": {
        "B4 no source, tags, objects": ["tag=", "send_object_list", "recv_object_list"],
        "C2 tensor and object forms": [
            "all_gather_into_tensor",
            "reduce_scatter_tensor",
            "all_to_all_single",
            "all_gather_object",
            "broadcast_object_list",
            "gather_object",
            "scatter_object_list",
        ],
        "C3 ReduceOp": ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG", "PREMUL_SUM"],
        "C5 async": ["async_op=True", "is_completed", "get_future"],
        "C6 CUDA streams": ["torch.cuda.Stream", "wait_stream"],
        "C7 mismatches": ["TORCH_DISTRIBUTED_DEBUG", "monitored_barrier"],
        "C8 hangs without labkit": [
            "faulthandler.dump_traceback_later",
            "_dump_fr_trace",
            "torch.distributed.flight_recorder.fr_trace",
            "timeout=timedelta",
        ],
    },
    "25_ddp_in_depth": {
        "G4 options": [
            "bucket_cap_mb=cap",
            "gradient_as_bucket_view=view",
            "find_unused_parameters=True",
            "static_graph=True",
            '"broadcast_buffers"',
            '"forward_sync_buffers"',
            "process_group=pair",
            "device_ids=[",
            "output_device=",
        ],
        "G5 changes after wrapping": ["model.append(", "model[0] = "],
        "G7 SyncBatchNorm": [
            "convert_sync_batchnorm",
            "global_statistics",
            "BatchNorm1d(1, affine=False)",
        ],
        "G8 ZeroRedundancyOptimizer": [
            "ZeroRedundancyOptimizer(p, torch.optim.Adam",
            "memory(",
            "class ShardedOptimizer",
        ],
        "G9 communication hooks": ["fp16_compress_hook", "register_comm_hook", "def bf16_hook"],
        "G10 the paper": [
            '"no overlap"',
            '"every 8"',
            "race(ways, rows, racers)",
            "fit_alpha_beta(",
            "def overhead(",
        ],
        "G6 uneven inputs": [
            "net.join(**options)",
            "throw_on_early_termination=True",
            "timeout=timedelta(",
        ],
    },
    "26_rpc": {
        "M1 RPC": [
            "rpc.init_rpc(",
            "_transports",
            "rpc_timeout=",
            "time.process_time()",
            "rpc.rpc_sync(",
            "rpc.rpc_async(",
            "rpc.remote(",
            "rpc.RRef(",
            ".to_here()",
            ".local_value()",
            "timeout=0.2",
            "rpc.shutdown()",
        ],
        "M1 a parameter server": [
            "class Server",
            "async_execution",
            "class AsyncServer",
            "dist.all_reduce(g, group=team)",
            "round_of_all_reduce",
            "io_counters().write_chars",
        ],
    },
}


@cache
def code_that_ran(book: str) -> str:
    """Return the sources of the code cells of a notebook, and of its second half if it has one,
    that have an execution count."""
    books = [nbformat.read(path, as_version=4) for path in material.notebooks(book[:2])]
    cells = [cell for nb in books for cell in nb.cells]
    ran = [c.source for c in cells if c.cell_type == "code" and c.execution_count]
    return "\n".join(re.sub(r"#.*", "", source) for source in ran)


@pytest.mark.parametrize("book", ROWS)
def test_each_row_of_a_notebook_has_its_calls(book: str) -> None:
    ran = code_that_ran(book)
    missing = {
        row: [call for call in calls if call not in ran] for row, calls in ROWS[book].items()
    }
    assert not {row: calls for row, calls in missing.items() if calls}


def test_every_link_of_the_learners_index_leads_somewhere() -> None:
    path = Path(material.root()) / "notebooks" / "README.md"
    cell = nbformat.v4.new_markdown_cell(path.read_text())
    nb = nbformat.v4.new_notebook(cells=[cell])
    found = links(cell.source)
    linked = {name for link in found if (name := link.partition("#")[0]).endswith(".ipynb")}
    assert linked == {p.name for p in material.notebooks()}
    problems = [(link, link_problem(link, cell, nb, path, path.parent.parent)) for link in found]
    assert [problem for problem in problems if problem[1]] == []
