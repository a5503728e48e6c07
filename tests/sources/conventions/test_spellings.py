"""Every name that public training code was seen to use, as it is spelled there."""

import pytest

from rankscope.model.options import ShapingOptions
from rankscope.sources.conventions import vocabulary
from tests.frames import ranges

ITERATIONS = {
    "step 12": 12,
    "step_12": 12,
    "steps{12}": 12,
    "Step 12": 12,
    "STEP-12": 12,
    "step: 12": 12,
    "Batch{7}": 7,
    "iteration12": 12,
    "iteration_12": 12,
    "Iteration 12": 12,
    "iter_12": 12,
    "iter 12": 12,
    "step_000123": 123,
    "Batch: 12": 12,
    "Batch12": 12,
    "step 3 of epoch 2": 3,
    "Epoch 2, Step #12": 12,
    "epoch 1/step 12/300": 12,
    "global_step=12": 12,
    "timestep 12": 12,
    "train_step": None,
    "ProfilerStep#12": 12,
    "[pl][profile]run_training_batch": None,
    "train_step-12": 12,
    "train_batch_iter": None,
    "event/batch": None,
    "TSL:XlaModule:#hlo_module=jit_train_step_fn,program_id=5#": None,
    "XlaModule:#prefix=jit(main),hlo_module=jit_step_fn,program_id=5#": None,
}

PHASES = {
    "load": [
        *("load", "load_batch", "Data Loading", "DataLoad", "data_loading", "data_wait"),
        "dataloader",
        *("get batch", "next batch", "Get batch", "batch-generator", "dataloader/train"),
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
        *("batch_wait", "fetch data", "## next_batch ##", "## wait_for_batch ##", "data time"),
        *(
            "host_to_device",
            "to device",
            "move_batch_to_gpu",
            "prepare_batch",
            "data preprocessing",
        ),
        *("Copy to device", "data copy in 12", "h2d", "## copy_batch_to_gpu ##"),
    ],
    "forward": [
        *("forward", "Forward", "Forward_Pass", "Forward Pass", "Forward pass", "fwd"),
        *(
            "forward-compute",
            "fwd_microstep",
            "forward_and_loss",
            "Model Forward Pass",
            "forward_3",
        ),
        *("model_forward", "3_forward", "loss_calculation", "loss", "forward_step", "fwd[mb=3]"),
        *("DistributedDataParallel.forward", "## forward ##", "DeepSpeedEngine.forward"),
        "[pl][profile][Strategy]DDPStrategy.training_step",
        *("event/forward", "event/loss"),
        "TSL:Thunk:#hlo_op=fusion.7,name=jit(step_fn)/jvp(Dense)/dot#",
    ],
    "backward": [
        *("backward", "BACKWARD", "Backward Pass", "Backward pass", "bwd", "## backward ##"),
        *("DeepSpeedEngine.backward", "event/backward", "backward-compute", "bwd_microstep"),
        *("bwd_inner_microstep", "loss.backward()", "model_backward", "## backward 2 ##"),
        "[pl][profile][Strategy]DDPStrategy.backward",
        "TSL:Thunk:#hlo_op=fusion.9,name=jit(step_fn)/transpose(jvp(Dense))/dot#",
    ],
    "optimizer": [
        *(
            "optimizer",
            "Optimizer step",
            "opt.step()",
            "## optimizer ##",
            "Optimizer.step#SGD.step",
        ),
        *("optimizer-inner-step", "step_microstep", "optim.step()", "OptimizerUpdate", "zero_grad"),
        *("grad_clip", "optimizer.zero_grad()", "clip_grad_norm_", "unscale_gradients"),
        *("Optimizer.zero_grad#SGD.zero_grad", "nemo.core.optim.mcore_optim.step.step"),
        *("DeepSpeedZeroOptimizer_Stage3.step", "multiply-grads", "clip-grads", "clip_grad_norm"),
        "[pl][profile][Strategy]DDPStrategy.optimizer_step",
    ],
}

COLLECTIVES = {
    "all_reduce": [
        *("all_reduce", "allreduce", "AllReduce_Gradients", "AllReduce", "grad_sync"),
        *("bwd_allreduce_microstep", "bwd_allreduce"),
        *("nccl:all_reduce", "all-grads-sync", "reduce-grads", "sync_gradients_across_dp"),
        *("DeepSpeedEngine.allreduce_gradients", "TSL:Thunk:#hlo_op=all-reduce-start.2#"),
    ],
    "all_gather": [
        *("nccl:_all_gather_base", "TSL:Thunk:#hlo_op=all-gather-start#"),
        *("all_gather_object", "torch.distributed.all_gather_object"),
    ],
    "reduce_scatter": ["nccl:_reduce_scatter_base", "TSL:Thunk:#hlo_op=reduce-scatter.4#"],
    "all_to_all": ["nccl:all_to_all"],
    "barrier": ["monitored_barrier"],
    "rooted": ["gather_object", "dist.scatter_object_list", "broadcast_object_list"],
}

OTHERS = {
    "iteration": ["step"],
    "operator": ["aten::mm", "c10d::allreduce_", "record_param_comms"],
    "backward operator": [
        "autograd::engine::evaluate_function: AddmmBackward0",
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "AddmmBackward0",
    ],
    "background": [
        "[DALI][Executor] RunCPU",
        "[DALI][Executor] RunMixed",
        "[DALI][Executor] RunGPU",
    ],
    None: [
        "megatron.core.tensor_parallel.layers.forward_step.gemm",
        *(
            "forward-backward",
            "forward_backward_func",
            "forward-recv",
            "backward-send-forward-recv",
        ),
        *("layers.3.forward", "op1.backward", "item_forward", "val_forward", "eval step 3"),
        *(
            "batch_norm",
            "data_parallel",
            "sample 5",
            "epoch 3",
            "moe_iter_3",
            "loss_scale",
            "train",
        ),
        *("batch_time", "for batch 3", "prepare"),
        *("update_weights", "optimizer-copy-to-main-grad", "update_actor", "micro_batch 3"),
        "validate",
        "stepping stone",
        "my backward compatible step",
        "",
    ],
}


def meaning(name: str, domain: str = "") -> dict[str, object]:
    return (
        vocabulary(ShapingOptions())
        .meanings(ranges((0, 1, name), domain=domain))
        .row(0, named=True)
    )


@pytest.mark.parametrize(("name", "number"), ITERATIONS.items())
def test_iterations_as_spelled(name: str, number: int | None) -> None:
    found = meaning(name)
    assert (found["means"], found["number"]) == ("iteration", number)


@pytest.mark.parametrize(
    ("name", "means"),
    [
        (name, means)
        for table in (PHASES, OTHERS)
        for means, names in table.items()
        for name in names
    ],
)
def test_phases_as_spelled(name: str, means: str | None) -> None:
    assert meaning(name)["means"] == means


@pytest.mark.parametrize(
    ("name", "operation"),
    [(name, operation) for operation, names in COLLECTIVES.items() for name in names],
)
def test_collectives_as_spelled(name: str, operation: str) -> None:
    found = meaning(name)
    assert (found["means"], found["operation"]) == ("collective", operation)


@pytest.mark.parametrize("name", ["ncclAllReduce", "ncclGroupStart", "ncclSend"])
def test_nccls_own_domain(name: str) -> None:
    found = meaning(name, "NCCL")
    assert (found["means"], found["blocking"]) == ("collective", False)
    assert meaning(name)["means"] is None


def test_who_fetches() -> None:
    assert meaning("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")["fetch"]
    for copy in ("Copy to device", "data copy in 12", "h2d", "## copy_batch_to_gpu ##"):
        assert not meaning(copy)["fetch"]
