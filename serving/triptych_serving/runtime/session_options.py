"""What the runtime is told when a session is made."""


def cpu_entries(threads: int, exact_products: bool) -> dict[str, str]:
    """Configuration of a session on the CPU.

    Args:
        threads: inside one operator.
        exact_products: of integers, where the processor's fast instructions would overflow.
    """
    return {
        # Threads that share operators must not sleep between them (15 % of a lone BERT-base request), nor spin after a run.
        "session.intra_op.allow_spinning": "1" if threads > 1 else "0",
        "session.force_spinning_stop": "1",
        "session.set_denormal_as_zero": "1",
        # Add + LayerNormalization took 14-17 us where the fused operator took 69-90.
        "optimization.disable_specified_optimizers": "SkipLayerNormFusion",
        "session.x64quantprecision": "1" if exact_products else "0",
    }


def gpu_entries(captures: bool) -> dict[str, str]:
    """Configuration of a session on a GPU.

    Args:
        captures: runs may be captured as CUDA graphs, so no operator may be left to the CPU; loading then fails and names it.
    """
    return {
        # Weights stay for good: out of the allocator's reach, which would round their blocks up.
        "session.use_device_allocator_for_initializers": "1",
        "session.disable_cpu_ep_fallback": "1" if captures else "0",
        "session.intra_op.allow_spinning": "0",  # its threads have next to nothing to do
    }


def cuda_options(index: int, stream: int, limit_bytes: int | None, captures: bool) -> dict[str, str]:
    """Options of the CUDA provider, of which each session has one.

    Args:
        index: of the GPU.
        stream: address of the one that everything runs on.
        limit_bytes: of the session's allocator; None: no limit.
        captures: runs may be captured as CUDA graphs.
    """
    options = {
        "device_id": str(index),
        "user_compute_stream": str(stream),
        # The other strategy doubles what it takes each time, far beyond what was planned.
        "arena_extend_strategy": "kSameAsRequested",
        # A search by trial would be made anew for each new shape.
        "cudnn_conv_algo_search": "HEURISTIC",
        # As many bits as float16 has: where a graph multiplies in float32 what was float16, nothing is lost.
        "use_tf32": "1",
        "enable_skip_layer_norm_strict_mode": "1",  # sums in float32
        "enable_cuda_graph": "1" if captures else "0",
    }
    if limit_bytes is not None:
        options["gpu_mem_limit"] = str(limit_bytes)
    return options
