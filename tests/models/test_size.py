"""What a model takes, against closed forms, against `transformers`, and against what really is kept and computed."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.attention.efficient.longformer_layer import LongformerShape
from regard.attention.exact import ExactShape
from regard.attention.mask import Causal, Window
from regard.blocks.config import head_width
from regard.data.batching import Inputs, Padded
from regard.models.config import TransformerConfig
from regard.models.families import FAMILIES
from regard.models.size import Size, size_of
from regard.models.transformer import Transformer
from regard.training.optimizers import adamw
from regard.training.plan import TrainingPlan

SMALL = {"width": 60, "heads": 6, "layers": 3, "vocabulary": 211, "max_positions": 37, "dropout": 0.0}
CONFIGS = {
    "gpt": TransformerConfig(
        architecture="decoder",
        norm_placement="pre",
        feedforward="gelu_tanh",
        positions="learned",
        scale_embeddings=False,
        **SMALL,
    ),
    "llama": TransformerConfig(
        architecture="decoder",
        norm="rms",
        norm_placement="pre",
        feedforward="swiglu",
        feedforward_width=97,
        positions="rotary",
        bias=False,
        tie_embeddings=False,
        key_value_heads=2,
        **SMALL,
    ),
    "bert": TransformerConfig(
        architecture="encoder",
        feedforward="gelu",
        positions="learned",
        segments=2,
        embedding_norm=True,
        head="masked",
        output_bias=True,
        **SMALL,
    ),
    "pooled": TransformerConfig(architecture="encoder", positions="learned", head="none", pooled=True, **SMALL),
    "classes": TransformerConfig(architecture="encoder", head="labels", labels=("a", "b", "c"), **SMALL),
    "n-grams": TransformerConfig(architecture="encoder", head="labels", labels=("a", "b"), ngram_buckets=41, **SMALL),
    "spans": TransformerConfig(architecture="encoder", head="spans", **SMALL),
    "2017": TransformerConfig(encoder_layers=2, **SMALL),
    "t5": TransformerConfig(
        norm="rms", norm_placement="pre", positions="t5", head_width=7, bias=False, scale_output=True, **SMALL
    ),
    "additive": TransformerConfig(architecture="decoder", similarity="additive", **SMALL),
    "pattern": TransformerConfig(
        architecture="decoder",
        norm_placement="pre",
        attention=[{"name": "exact", "window": 5, "query_key_norm": "rms"}, "exact"],
        **SMALL,
    ),
    "gemma": TransformerConfig(
        architecture="decoder",
        norm="rms_offset",
        norm_placement="sandwich",
        feedforward="geglu_tanh",
        positions="rotary",
        bias=False,
        output_softcap=3.0,
        attention={"query_key_norm": "rms_offset", "biases": ["query"]},
        **SMALL,
    ),
    "bart": TransformerConfig(encoder_layers=2, positions="learned", embedding_norm=True, output_bias=True, **SMALL),
    "values": TransformerConfig(architecture="decoder", attention={"name": "exact", "value_width": 13}, **SMALL),
}
CONTEXT = 31


def member(name: str) -> TransformerConfig:
    (family,) = [one for one in FAMILIES.values() if name in one.sizes]
    return family.config(name)


# Parameters


def closed(config: TransformerConfig) -> dict[str, int]:
    """The same counts from the papers' formulas."""
    width, inner = config.width, config.feedforward_width or 4 * config.width
    heads, shared = config.heads * head_width(config), (config.key_value_heads or config.heads) * head_width(config)
    bias, norm = int(config.bias), 2 * width if config.norm == "layer" else width
    attention = 2 * width * heads + 2 * width * shared
    one = config.attending[0]  # all are alike in this
    named = one.biases if isinstance(one, ExactShape) else None
    vectors = {"query": heads, "key": shared, "value": shared, "output": width}
    attention += sum(size for name, size in vectors.items() if (bias if named is None else name in named))
    if isinstance(one, ExactShape) and one.query_key_norm != "none":
        attention += 2 * head_width(config)
    if isinstance(one, LongformerShape):  # global tokens have projections of their own
        attention += 3 * (width + bias) * width
    gates = 2 if config.feedforward in ("swiglu", "geglu", "geglu_tanh") else 1
    feedforward = (gates + 1) * width * inner + bias * (gates * inner + width)
    encoder = 0 if config.architecture == "decoder" else config.encoder_layers or config.layers
    decoder = 0 if config.architecture == "encoder" else config.layers
    stacks = (encoder > 0) + (decoder > 0)
    cross = decoder if encoder else 0
    masked, tokens = config.head == "masked", config.head in ("masked", "tokens")
    own = 0 if config.tie_embeddings or not tokens else config.vocabulary * width
    output = own + config.output_bias * config.vocabulary + masked * (width + 1) * width
    output += {"labels": len(config.labels), "spans": 2}.get(config.head, 0) * (width + 1)
    output += (config.pooled or config.head == "labels") * (width + 1) * width
    output += config.ngram_buckets * len(config.labels)
    learnt = stacks * config.max_positions * width if config.positions == "learned" else 0
    ends = (config.norm_placement != "post") * stacks + config.embedding_norm * stacks + masked
    around = 2 if config.norm_placement == "sandwich" else 1
    return {
        "embedding": (config.vocabulary + config.segments) * width + learnt,
        "attention": (encoder + decoder + cross) * attention
        + (stacks * config.relative_buckets * config.heads if config.positions == "t5" else 0),
        "feedforward": (encoder + decoder) * feedforward,
        "norms": (around * (2 * (encoder + decoder) + cross) + ends) * norm,
        "output": output,
    }


SIZES = sorted(name for family in FAMILIES.values() for name in family.sizes)


@pytest.mark.parametrize("name", [*(name for name in CONFIGS if name not in ("additive", "pattern", "values")), *SIZES])
def test_parameters_are_the_closed_forms(name):
    config = CONFIGS[name] if name in CONFIGS else member(name)
    assert size_of(config).parts == closed(config)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_model(name):
    total = sum(parameter.numel() for parameter in Transformer(CONFIGS[name]).parameters())
    assert size_of(CONFIGS[name]).parameters == total


def test_gpt3_is_counted_without_allocating():
    assert size_of(member("gpt3")).parameters == 174_604_259_328  # 175B in Brown et al. 2020, table 2.1


PUBLISHED = {
    "mistral-7b": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "qwen2-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984,
    "gemma2-27b": 27_227_128_320,
    "gemma3-270m": 268_098_176,
    "gemma3-1b": 999_885_952,
    "opt-125m": 125_239_296,
    "opt-1.3b": 1_315_758_080,
    "opt-6.7b": 6_658_473_984,
    "bart-base": 139_420_416,
    "bart-large": 406_291_456,
    "distilbert-base": 66_985_530,
}
"""As the publishers' files count them, a tied table once."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_named_sizes_have_the_published_parameters(name):
    unused = {"opt": 2, "bart": 4}.get(name.partition("-")[0], 0) * member(name).width  # rows that no text reaches
    bias = member(name).vocabulary if name.startswith("bart") else 0  # which is no parameter there
    assert size_of(member(name)).parameters == PUBLISHED[name] - unused + bias


PEERS = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {}, 124_439_808),
    "gpt2-xl": ("GPT2Config", "GPT2LMHeadModel", {"n_layer": 48, "n_embd": 1600, "n_head": 25}, 1_557_611_200),
    "t5-small": ("T5Config", "T5ForConditionalGeneration", {}, 60_506_624),
    "llama-7b": ("LlamaConfig", "LlamaForCausalLM", {}, 6_738_415_616),
    "bert-base": ("BertConfig", "BertForMaskedLM", {}, 109_514_298),
    "roberta-base": (
        "RobertaConfig",
        "RobertaForMaskedLM",
        {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
        None,
    ),
}


@pytest.mark.parametrize("name", PEERS)
def test_named_sizes_have_the_parameters_of_transformers(name):
    transformers = pytest.importorskip("transformers")
    config, model, changes, published = PEERS[name]
    with torch.device("meta"):
        peer = getattr(transformers, model)(getattr(transformers, config)(**changes))
    expected = sum(parameter.numel() for parameter in peer.parameters())
    assert published is None or expected == published
    unused = 2 * 768 if name == "roberta-base" else 0  # its first two positions are never reached
    assert size_of(member(name)).parameters == expected - unused


def test_berts_body_with_its_pooler_is_the_published_size():
    config = member("bert-base").model_copy(update={"head": "none", "pooled": True, "output_bias": False})
    assert size_of(config).parameters == 109_482_240


# Memory


def inputs_of(config: TransformerConfig, rows: int, tokens: int) -> Inputs:
    ids = torch.randint(config.vocabulary, (rows, tokens)).tolist()
    return Inputs(Padded.of(ids), Padded.of(ids) if config.architecture == "encoder_decoder" else None)


WRITERS = [name for name, config in CONFIGS.items() if config.architecture != "encoder" and name != "additive"]


@pytest.mark.parametrize("name", WRITERS)
def test_the_cache_holds_as_many_bytes(name):
    config = CONFIGS[name]
    model = Transformer(config).eval()
    with torch.no_grad():
        _, state = model.step(torch.tensor([5]), model.start(inputs_of(config, 1, 13)))
    held = sum(one.keys.nbytes + one.values.nbytes for one in (*state.cache.own, *state.cache.memory))
    assert held == size_of(config, 13).whole_cache.float32


def test_grouped_heads_have_the_published_cache():
    size = size_of(member("llama2-70b"))
    assert size.cache.bfloat16 == 2 * 80 * 8 * 128 * 2  # Touvron et al. 2023: 80 layers, 8 key/value heads of 128


def test_an_encoder_has_no_cache():
    assert size_of(CONFIGS["bert"]).cache.float32 == 0


@pytest.mark.parametrize("name", WRITERS)
def test_a_step_of_training_holds_as_many_bytes(name):
    config = CONFIGS[name]
    model = Transformer(config)
    optimizer = adamw(model, TrainingPlan())
    model(inputs_of(config, 2, 7)).sum().backward()
    optimizer.step()
    weights = list(model.parameters())
    moments = [one[key] for one in optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
    size = size_of(config)
    assert sum(one.nbytes for one in weights) == size.trained_weights.float32
    assert sum(one.grad.nbytes for one in weights) == size.gradients.float32
    assert sum(one.nbytes for one in moments) == size.moments.float32
    held = sum(one.nbytes for one in [*weights, *(one.grad for one in weights), *moments])
    assert held == size.state.float32


@pytest.mark.parametrize("name", ["gpt", "llama", "bert", "2017", "t5", "pattern"])
def test_what_is_kept_for_the_backward_pass_is_within_a_tenth_of_the_estimate(name):
    config = CONFIGS[name]
    model = Transformer(config)
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if tensor.is_floating_point() and place not in own:
            kept[place] = tensor
        return tensor

    given = inputs_of(config, 2, CONTEXT)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        F.cross_entropy(model(given).flatten(0, 1), given.tokens.ids.flatten(), reduction="sum")
    held = sum(tensor.untyped_storage().nbytes() for tensor in kept.values()) / (2 * CONTEXT)
    assert 0.9 < held / size_of(config, CONTEXT).activations.float32 < 1.1


# Work


def counted(config: TransformerConfig) -> tuple[float, float]:
    """What PyTorch counts for a token: all, and the part that is not attention."""
    model = Transformer(config).eval()
    given = inputs_of(config, 2, CONTEXT)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(given)
    found = {str(name): count / (2 * CONTEXT) for name, count in counter.get_flop_counts()["Global"].items()}
    return sum(found.values()), found.get("aten.mm", 0.0) + found.get("aten.addmm", 0.0)


def attention_work(size: Size) -> float:
    """Scores and sums of values, 2 operations each, for the pairs that are seen."""
    config, n = size.config, size.context
    pairs = {"encoder": n * n, "decoder": n * (n + 1) / 2}.get(config.architecture)
    if pairs is None:
        encoder, decoder = (config.encoder_layers or config.layers), config.layers
        return 4 * config.heads * head_width(config) * (encoder * n + decoder * (n + 1) / 2 + decoder * n)
    return 4 * config.heads * head_width(config) * config.layers * pairs / n


@pytest.mark.parametrize("name", ["gpt", "llama", "bert", "spans", "2017", "t5"])
def test_the_work_of_matrices_is_what_pytorch_counts(name):
    size = size_of(CONFIGS[name], CONTEXT)
    _, matrices = counted(CONFIGS[name])
    assert size.work.forward == pytest.approx(matrices + attention_work(size), rel=1e-12)


def test_a_window_has_the_work_of_the_pairs_it_lets_see():
    size = size_of(CONFIGS["pattern"], CONTEXT)
    _, matrices = counted(CONFIGS["pattern"])
    windowed = int((Causal() & Window(5)).dense((1, 1, CONTEXT, CONTEXT), torch.device("cpu")).sum())
    every = CONTEXT * (CONTEXT + 1) // 2
    pairs = 4 * 6 * 10 * (2 * windowed + every)  # of three layers the first and the last have it
    assert size.work.forward == pytest.approx(matrices + pairs / CONTEXT, rel=1e-12)
    size = size_of(CONFIGS["values"], CONTEXT)
    _, matrices = counted(CONFIGS["values"])
    assert size.work.forward == pytest.approx(matrices + 3 * 2 * 6 * (10 + 13) * every / CONTEXT, rel=1e-12)
    assert size.activations is None


@pytest.mark.parametrize("name", ["bert", "spans"])
def test_the_work_of_an_encoder_is_what_pytorch_counts(name):
    everything, _ = counted(CONFIGS[name])
    assert size_of(CONFIGS[name], CONTEXT).work.forward == pytest.approx(everything, rel=1e-12)


@pytest.mark.parametrize("name", ["gpt", "t5"])
def test_training_is_three_times_the_work(name):
    config = CONFIGS[name]
    model = Transformer(config)
    given = inputs_of(config, 2, CONTEXT)
    with FlopCounterMode(display=False) as counter:
        model(given).sum().backward()
    found = {str(operation): count for operation, count in counter.get_flop_counts()["Global"].items()}
    matrices = (found.get("aten.mm", 0) + found.get("aten.addmm", 0)) / (2 * CONTEXT)
    size = size_of(config, CONTEXT)
    assert size.work.training == pytest.approx(matrices + 3 * attention_work(size), rel=1e-12)
    assert size.work.training == 3 * size.work.forward
