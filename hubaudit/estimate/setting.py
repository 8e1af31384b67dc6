"""A workload made definite for one model: every choice that was left open is made, and said."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hubaudit.data.dtypes import bits_of, dtype_named, is_float, short_name
from hubaudit.errors import UsageError
from hubaudit.estimate.component import Input, given
from hubaudit.estimate.conversion import conversion_of
from hubaudit.estimate.kv_dtype import default_quantized, kv_type, runtime_row
from hubaudit.estimate.releases import release_of

if TYPE_CHECKING:
    from hubaudit.estimate.conversion import Conversion
    from hubaudit.estimate.kv_dtype import KvType
    from hubaudit.estimate.releases import Release
    from hubaudit.types import ModelFacts, Workload

DEFAULT_PROMPT_TOKENS = 2048
DEFAULT_NEW_TOKENS = 512
#: What bitsandbytes can hold weights in, which is what adapters are trained on.
QUANTS = ("int8", "nf4", "fp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One workload on one model, definite.

    ``dtype`` is what floating weights are loaded in and computed with, ``conversion`` what quantizes them on the way, ``kv`` the type of cached keys and values under ``runtime``, ``cache``
    one of that engine's caches, ``batch_size`` all sequences at once (beams too), ``prompts`` how many of them an encoder reads, ``choice`` how generate() takes the next token of each, ``max_cache_len`` the size asked for a static one (0 where none was).
    """

    batch_size: Input
    prompts: Input
    choice: Literal["greedy", "sampled", "beams"]
    prompt_tokens: Input
    new_tokens: Input
    encoder_tokens: Input
    dtype: str
    dtype_bits: Input
    kv: KvType
    conversion: Conversion | None
    attention: str
    runtime: str
    cache: str
    max_cache_len: Input
    draft_tokens: Input
    release: Release
    assumptions: tuple[str, ...]

    @property
    def kv_bits(self) -> Input:
        """Width of one cached element, for the types of which an element has one."""
        return self.kv.bits


def settle(facts: ModelFacts, workload: Workload) -> Setting:
    """Fill in what the workload leaves open, from the model and from what transformers does by default.

    Raises:
        UsageError: the workload asks for something that does not exist.
    """
    assumptions: list[str] = []
    workload = _as_its_format_runs(facts, workload, assumptions)
    prompt, new = _tokens(facts, workload, assumptions)
    dtype, dtype_where = load_choice(facts, workload, assumptions)
    cache, kv = _cache(facts, workload, dtype, dtype_where)
    conversion = conversion_of(workload)
    if conversion is not None and workload.runtime != "transformers":
        raise UsageError(
            f"--quant is what transformers does while it loads; {workload.runtime} quantizes otherwise",
            hint="audit a repository whose weights are quantized",
        )
    if conversion is not None and conversion.note is not None:
        assumptions.append(conversion.note)
    if conversion is not None and (reason := conversion.why_it_fails(facts.model_type)) is not None:
        assumptions.append(reason)
    return Setting(
        batch_size=_sequences(workload),
        prompts=given(workload.batch_size, "workload"),
        choice="beams" if workload.num_beams > 1 else "sampled" if workload.num_return_sequences > 1 else "greedy",
        prompt_tokens=prompt,
        new_tokens=new,
        encoder_tokens=_encoder_tokens(facts, workload, prompt, assumptions),
        dtype=dtype,
        dtype_bits=given(bits_of()[dtype], dtype_where),
        kv=kv,
        conversion=conversion,
        attention=workload.attention,
        runtime=workload.runtime,
        cache=cache,
        max_cache_len=given(workload.max_cache_len or 0, "workload"),
        draft_tokens=given(workload.draft_tokens, "workload"),
        release=_release(workload, assumptions),
        assumptions=tuple(assumptions),
    )


def definite(facts: ModelFacts, workload: Workload) -> Workload:
    """The workload with every open choice filled in as :func:`settle` does, for the report."""
    setting = settle(facts, workload)
    return replace(
        workload,
        prompt_tokens=setting.prompt_tokens.value,
        new_tokens=setting.new_tokens.value,
        encoder_tokens=setting.encoder_tokens.value,
        dtype=short_name(setting.dtype),
        kv_dtype=setting.kv.name,
        cache=setting.cache,
        runtime=setting.runtime,
    )


def _sequences(workload: Workload) -> Input:
    """Sequences at once: generate() repeats each prompt for every beam and for every sequence to return, before the prompt is read."""
    batch_size = _at_least_one(workload.batch_size, "batch size")
    beams = _at_least_one(workload.num_beams, "number of beams")
    returned = _at_least_one(workload.num_return_sequences, "number of sequences to return")
    if beams > 1 and returned > beams:
        raise UsageError(f"{beams} beams give no {returned} sequences", hint="--num-return-sequences up to --num-beams")
    copies = max(beams, returned)
    if copies > 1 and workload.runtime != "transformers":
        raise UsageError(
            "beams and several sequences a prompt are for --runtime transformers", hint="a larger --batch-size"
        )
    return given(
        batch_size * copies, f"workload: batch {batch_size} × {copies} sequences each" if copies > 1 else "workload"
    )


def _release(workload: Workload, assumptions: list[str]) -> Release:
    release = release_of(workload.runtime_version)
    if workload.runtime_version is not None:
        if workload.runtime != "transformers":
            raise UsageError("only releases of transformers are told apart", hint="leave out --runtime-version")
        assumptions.append(f"as transformers {release.since} allocates")
    return release


def _as_its_format_runs(facts: ModelFacts, workload: Workload, assumptions: list[str]) -> Workload:
    """GGUF is llama.cpp's own format: transformers would unpack it first, which is what another repository holds already."""
    if facts.format != "gguf":
        return workload
    own, _ = load_choice(facts, replace(workload, dtype=None), [])
    if workload.dtype is not None and dtype_named(workload.dtype) != own:
        raise UsageError("the weights of a GGUF file stay as they are stored", hint="leave out --dtype")
    if workload.runtime != "transformers":
        return workload
    assumptions.append("a GGUF file, as llama.cpp runs it")
    return replace(workload, runtime="llama.cpp")


def _tokens(facts: ModelFacts, workload: Workload, assumptions: list[str]) -> tuple[Input, Input]:
    """Prompt and new tokens; the defaults give way to a shorter context, an explicit wish does not."""
    is_generator = facts.family not in ("encoder", "other")
    limit = facts.max_positions.value
    new = workload.new_tokens if workload.new_tokens is not None else (DEFAULT_NEW_TOKENS if is_generator else 0)
    prompt = workload.prompt_tokens if workload.prompt_tokens is not None else DEFAULT_PROMPT_TOKENS
    if new < 0:
        raise UsageError("new tokens cannot be negative")
    if limit and workload.prompt_tokens is None and workload.new_tokens is None and prompt + new > limit:
        new = min(new, limit // 4)
        prompt = limit - new
        assumptions.append(f"prompt and new tokens cut to the model's {limit} positions")
    elif limit and prompt + new > limit:
        assumptions.append(f"{prompt + new} tokens are more than the {limit} positions that the config declares")
    if workload.prompt_tokens is None and facts.family != "other":
        assumptions.append(
            f"prompt of {prompt} tokens and {new} new ones, unless --prompt-tokens and --new-tokens say otherwise"
        )
    return given(_at_least_one(prompt, "prompt tokens"), "workload"), given(new, "workload")


def _encoder_tokens(facts: ModelFacts, workload: Workload, prompt: Input, assumptions: list[str]) -> Input:
    """What the encoder hands to cross-attention: the prompt, where the encoder reads text; nothing, where no image or sound is given."""
    if workload.encoder_tokens is not None:
        return given(workload.encoder_tokens, "workload")
    crosses = any(tensor.grows_with == "encoder_tokens" for layer in facts.layer_plan or () for tensor in layer.tensors)
    if facts.family == "encoder-decoder":
        return prompt
    if crosses:
        assumptions.append(
            "no images or sound: cross-attention keeps nothing (--encoder-tokens says how many tokens they make)"
        )
    return given(0, "workload")


def load_choice(facts: ModelFacts, workload: Workload, assumptions: list[str]) -> tuple[str, str]:
    """The dtype that weights are loaded in: the workload's, else the config's as transformers 5 does, else the files', else float32."""
    if workload.dtype is not None:
        named = dtype_named(workload.dtype)
        if named is None or not is_float(named) or bits_of()[named] < 16:
            raise UsageError(
                f"cannot compute in dtype `{workload.dtype}`",
                hint="one of fp32, bf16, fp16, fp64; --quant for int8 and 4 bit",
            )
        return named, "workload"
    said = facts.dtype.value
    if said is not None and bits_of()[said] >= 16:
        return said, facts.dtype.where
    if said is not None:
        assumptions.append(f"weights are stored as {short_name(said)} and computed with in bf16")
        return "BF16", "rule:8-bit and narrower floats are computed with in bf16"
    assumptions.append("no dtype is named anywhere: loaded as fp32, torch's own default")
    return "F32", "default:torch.get_default_dtype()"


def _cache(facts: ModelFacts, workload: Workload, dtype: str, where: str) -> tuple[str, KvType]:
    """The engine's cache and its type, each as asked or as the other or the engine decides."""
    caches = runtime_row(workload.runtime)["caches"]
    kv = kv_type(workload.runtime, workload.kv_dtype, facts, dtype, where)
    cache = workload.cache or kv.cache or caches[0]
    if cache not in caches:
        raise UsageError(f"{workload.runtime} has no cache called `{cache}`", hint=f"one of {', '.join(caches)}")
    if cache == "quantized" and kv.cache is None:
        if workload.kv_dtype not in (None, "auto"):
            raise UsageError(f"a quantized cache does not hold {kv.name}", hint="--kv-dtype int8, int4, int2 or fp8")
        kv = default_quantized()
    if kv.cache is not None and kv.cache != cache:
        raise UsageError(f"a {cache} cache does not hold {kv.name}", hint=f"--cache {kv.cache}")
    if workload.max_cache_len is not None and "static" not in cache:
        raise UsageError("only a static cache has a length of its own", hint="--cache static")
    if workload.draft_tokens < 0 or (workload.draft_tokens and workload.runtime == "transformers"):
        raise UsageError("drafted tokens are for --runtime vllm and llama.cpp, and no fewer than 0")
    return cache, kv


def _at_least_one(value: int, what: str) -> int:
    if value < 1:
        raise UsageError(f"{what} must be at least 1, not {value}")
    return value
