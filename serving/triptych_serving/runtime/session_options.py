"""Options of ONNX Runtime sessions."""

# Runs allocate from the process's allocator. Weights do not: they are permanent, and count towards no limit.
ARENA = {"session.use_env_allocators": "1", "session.use_device_allocator_for_initializers": "1"}


def cpu_entries(threads: int, exact_products: bool, restores_weights: bool = False) -> dict[str, str]:
    """Return the configuration of a session on the CPU.

    Args:
        threads: inside one operator.
        exact_products: avoid the processor's fast integer instructions, which would overflow.
        restores_weights: as of Session.
    """
    return {
        # Threads that share operators must not sleep between them (15 % of a lone BERT-base request), nor spin after a run.
        "session.intra_op.allow_spinning": "1" if threads > 1 else "0",
        "session.force_spinning_stop": "1",
        "session.set_denormal_as_zero": "1",
        # Add + LayerNormalization took 14-17 us where the fused operator took 69-90.
        "optimization.disable_specified_optimizers": "SkipLayerNormFusion",
        "session.x64quantprecision": "1" if exact_products else "0",
        # Else DequantizeLinear stays, and products quantize their inputs.
        "session.disable_quant_qdq": "1" if restores_weights else "0",
    }


def gpu_entries(captures: bool) -> dict[str, str]:
    """Return the configuration of a session on a GPU.

    Args:
        captures: runs may be captured as CUDA graphs; loading fails if an operator would run on the CPU, and names it.
    """
    return {
        # Weights are permanent: keep them out of the allocator, which would round their blocks up.
        "session.use_device_allocator_for_initializers": "1",
        "session.disable_cpu_ep_fallback": "1" if captures else "0",
        # Measures its own kernels for products of few rows and takes the faster ones: a step of one row 7 % faster on an H100.
        "ep.cuda.enable_gemm_auto_tune": "1" if captures else "0",
        "session.intra_op.allow_spinning": "0",  # its threads are almost idle
    }


def cuda_options(index: int, stream: int, limit_bytes: int | None, captures: bool) -> dict[str, str]:
    """Return the options of a session's CUDA provider.

    Args:
        index: of the GPU.
        stream: address of the stream that everything runs on.
        limit_bytes: of the session's allocator; None: no limit.
        captures: runs may be captured as CUDA graphs.
    """
    options = {
        "device_id": str(index),
        "user_compute_stream": str(stream),
        # The other strategy doubles each allocation, far beyond the memory plan.
        "arena_extend_strategy": "kSameAsRequested",
        # An exhaustive search would be repeated for each new shape.
        "cudnn_conv_algo_search": "HEURISTIC",
        # As many bits as float16 has: where a graph multiplies in float32 what was float16, nothing is lost.
        "use_tf32": "1",
        "enable_skip_layer_norm_strict_mode": "1",  # sums in float32
        "enable_cuda_graph": "1" if captures else "0",
    }
    if limit_bytes is not None:
        options["gpu_mem_limit"] = str(limit_bytes)
    return options
