"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., object]")


def hardware_options(command: F) -> F:
    """What the estimate is judged against."""
    for option in reversed(
        (
            click.option(
                "--gpu",
                "gpu_names",
                multiple=True,
                metavar="NAME[xN]|auto",
                help="Does it fit this accelerator, or this machine's own? May be repeated; `hubaudit gpus` lists the names.",
            ),
            click.option(
                "--memory",
                "memories",
                multiple=True,
                metavar="SIZE",
                help="Does it fit a device with so much, as 24GiB?",
            ),
        )
    ):
        command = option(command)
    return command


def prompt_options(command: F) -> F:
    """How many sequences there are, and how long a prompt each has."""
    batch = click.option(
        "-b", "--batch-size", type=click.IntRange(1), default=1, show_default=True, help="Sequences at once."
    )
    prompt = click.option(
        "--prompt-tokens",
        type=click.IntRange(1),
        help="Tokens of each prompt. Default: 2048, or what the model can take.",
    )
    return batch(prompt(command))


def dtype_option(command: F) -> F:
    """What weights are loaded in."""
    return click.option(
        "--dtype", metavar="DTYPE", help="Load weights as fp32, bf16 or fp16. Default: as transformers would."
    )(command)


def attention_option(command: F) -> F:
    """Which of transformers' attention implementations runs."""
    return click.option(
        "--attention",
        type=click.Choice(["sdpa", "eager", "flash"]),
        default="sdpa",
        show_default=True,
        help="Attention implementation.",
    )(command)


def quant_options(command: F) -> F:
    """What the weights are converted to while they are loaded, and how."""
    for option in reversed(
        (
            click.option(
                "--quant",
                metavar="METHOD",
                help="Quantize while loading: int8, nf4, fp4 (bitsandbytes); torchao-int8, torchao-int4, torchao-float8, fp8, mxfp4, hqq; "
                "gptq, gptq-int8, awq (what a calibrated checkpoint would take).",
            ),
            click.option(
                "--double-quant",
                "bnb_4bit_use_double_quant",
                is_flag=True,
                help="nf4, fp4: quantize the scales of the blocks too.",
            ),
            click.option(
                "--quant-storage",
                "bnb_4bit_quant_storage",
                metavar="DTYPE",
                help="nf4, fp4: dtype of the tensors that the weights are packed in. Default: uint8.",
            ),
            click.option(
                "--compute-dtype",
                "bnb_4bit_compute_dtype",
                metavar="DTYPE",
                help="nf4, fp4: dtype that the layers multiply in. Default: fp32, as in transformers.",
            ),
            click.option(
                "--group-size",
                "quant_group_size",
                type=click.IntRange(1),
                help="Weights that share a scale. Default: the method's own.",
            ),
            click.option(
                "--llm-int8-threshold",
                type=click.FloatRange(0),
                default=6.0,
                show_default=True,
                help="int8: inputs beyond it are multiplied in 16 bit; 0 for none.",
            ),
            click.option(
                "--skip-modules",
                "llm_int8_skip_modules",
                multiple=True,
                metavar="NAME",
                help="Modules to leave alone, instead of those that transformers leaves alone (the head). May be repeated.",
            ),
        )
    ):
        command = option(command)
    return command


def engine_options(command: F) -> F:
    """Which engine runs the model, and what it keeps between tokens. What an engine does not have is refused when it is known."""
    for option in reversed(
        (
            click.option(
                "--runtime",
                type=click.Choice(["transformers", "vllm", "llama.cpp"]),
                default="transformers",
                show_default=True,
                help="The engine that runs it: each keeps, rounds and pads in its own way.",
            ),
            click.option(
                "--cache",
                metavar="CACHE",
                help="transformers: dynamic, static, offloaded, offloaded_static, quantized; vllm: paged, paged_full (no hybrid manager); "
                "llama.cpp: swa, swa_full, expanded (all heads of latent attention). Default: the first.",
            ),
            click.option(
                "--max-cache-len", type=click.IntRange(1), help="Tokens that a static cache is sized for, where more."
            ),
            click.option(
                "--kv-dtype",
                metavar="DTYPE",
                help="auto (as the engine decides), bf16, fp16, fp32; int8, int4, int2 and fp8 in transformers' quantized cache; fp8, "
                "fp8_e5m2 and nvfp4 in vLLM; q8_0, q4_0, q5_1 and more in llama.cpp.",
            ),
            click.option(
                "--runtime-version",
                metavar="VERSION",
                help="transformers: the release that runs it, as 4.38 (logits of the whole prompt). Default: 5.23.",
            ),
            click.option("--num-beams", type=click.IntRange(1), default=1, help="transformers: beams of each prompt."),
            click.option(
                "--num-return-sequences",
                type=click.IntRange(1),
                default=1,
                help="transformers: sequences that each prompt is continued to.",
            ),
            click.option(
                "--draft-tokens",
                type=click.IntRange(0),
                default=0,
                help="Tokens that speculative decoding drafts at once; vLLM and llama.cpp keep a state for each.",
            ),
        )
    ):
        command = option(command)
    return command


def device_options(command: F) -> F:
    """How several devices share the model, for inference and training."""
    for option in reversed(
        (
            click.option(
                "--tp",
                type=click.IntRange(1),
                default=1,
                metavar="N",
                help="Devices that share every matrix and the heads.",
            ),
            click.option(
                "--pp",
                type=click.IntRange(1),
                default=1,
                metavar="N",
                help="Stages that share the layers (llama.cpp's --split-mode layer).",
            ),
            click.option(
                "--ep", type=click.IntRange(1), default=1, metavar="N", help="Devices that share the experts."
            ),
        )
    ):
        command = option(command)
    return command


def training_options(command: F) -> F:
    """What a fine-tuning run is made of. Each is for --mode train only, which says so itself."""
    for option in reversed(
        (
            click.option(
                "--seq-len",
                "sequence_tokens",
                type=click.IntRange(1),
                help="train: tokens of each sequence. Default: 2048, or what the model can take.",
            ),
            click.option(
                "--recipe",
                metavar="RECIPE",
                help="train: precision of weights, gradients and states: fp32, bf16, fp16, amp, amp-fp16, mixed-16, mixed-18, mixed-20, fp64, "
                "int8. Default: the load dtype, pure.",
            ),
            click.option(
                "--optimizer",
                metavar="NAME",
                help="train: adamw, adamw_foreach, adamw_8bit, paged_adamw_8bit, sgd, sgd_momentum, adafactor, lion, muon, galore_adamw and more. "
                "Default: adamw (fused, as the Hugging Face Trainer's).",
            ),
            click.option(
                "--grad-accum",
                type=click.IntRange(1),
                default=1,
                help="train: batches whose gradients are added up before an update.",
            ),
            click.option(
                "--gradient-checkpointing",
                "gradient_checkpointing",
                flag_value="full",
                help="train: keep each layer's input only, and compute the rest again.",
            ),
            click.option(
                "--selective-checkpointing",
                "gradient_checkpointing",
                flag_value="selective",
                help="train: compute attention's core again only (Megatron's selective recomputation).",
            ),
            click.option(
                "--checkpoint-every",
                type=click.IntRange(1),
                default=1,
                help="train: checkpoint groups of so many layers, with --gradient-checkpointing.",
            ),
            click.option(
                "--loss",
                metavar="LOSS",
                help="train: how logits become a loss: full (transformers), held (the outputs live on through backward), chunked, fused (Liger).",
            ),
        )
    ):
        command = option(command)
    return _adapter_options(_sharding_options(command))


def _adapter_options(command: F) -> F:
    for option in reversed(
        (
            click.option("--lora", metavar="RANK", type=click.IntRange(1), help="train: adapters of this rank."),
            click.option(
                "--lora-targets",
                metavar="NAMES",
                help="train: all-linear, or module names with commas between. Default: PEFT's for the model type.",
            ),
            click.option(
                "--lora-variant",
                type=click.Choice(["lora", "dora", "rslora"]),
                help="train: which kind of low-rank adapter. Default: lora.",
            ),
            click.option("--lora-dropout", is_flag=True, help="train: the adapters have dropout."),
            click.option(
                "--modules-to-save",
                multiple=True,
                metavar="NAME",
                help="train: train a copy of this module whole beside the adapters. May be repeated.",
            ),
        )
    ):
        command = option(command)
    return command


def _sharding_options(command: F) -> F:
    for option in reversed(
        (
            click.option("--zero", type=click.IntRange(0, 3), help="train: DeepSpeed ZeRO stage."),
            click.option("--fsdp", type=click.IntRange(1, 2), help="train: PyTorch FSDP 1 or 2, full shard."),
            click.option("--gpus", type=click.IntRange(1), default=1, help="train: GPUs, one process on each."),
            click.option(
                "--cp",
                type=click.IntRange(1),
                default=1,
                metavar="N",
                help="train: ranks that share a sequence (ring attention).",
            ),
            click.option(
                "--sequence-parallel",
                is_flag=True,
                help="train: with --tp, divide also what lies between the matrices.",
            ),
            click.option(
                "--offload",
                metavar="WHAT",
                help="train: keep in host memory (or on NVMe): optimizer, or all (parameters too); optimizer-nvme, all-nvme.",
            ),
        )
    ):
        command = option(command)
    return command


def access_options(command: F) -> F:
    """How the Hub, or the cache, is read."""
    for option in reversed(
        (
            click.option("--revision", metavar="REV", help="Branch, tag or commit of a Hub repository."),
            click.option("--token", metavar="TOKEN", help="Hub token. Better: `hf auth login`, or HF_TOKEN."),
            click.option(
                "--cache-dir",
                type=click.Path(path_type=Path, file_okay=False),
                help="Where facts are kept by commit. Default: in HF_ASSETS_CACHE.",
            ),
            click.option("--offline", is_flag=True, help="Ask the Hub nothing (as HF_HUB_OFFLINE=1)."),
            click.option(
                "--file",
                metavar="PATH",
                help="Audit these weights of the repository (a quantization, a variant, a part), not those that loaders would choose.",
            ),
        )
    ):
        command = option(command)
    return command
