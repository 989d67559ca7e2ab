"""The timing model: DLNetBench's published times, FLOPs against independent counts, overrides."""

import dataclasses

import pytest

from jaxbench.catalog.hardware import HARDWARE
from jaxbench.catalog.models import MODELS
from jaxbench.errors import InputError
from jaxbench.timing_model import (
    Work,
    attended_pairs,
    experts_per_token,
    forward_flops,
    forward_work,
    missing_peak,
    model_times,
)

A100, GH200 = HARDWARE["a100_40"], HARDWARE["gh200"]


def times(name, hardware, *, batch=16, seq_len=None, dtype="bfloat16", **options):
    model = MODELS[name]
    seq_len = seq_len or model.seq_len
    return model_times(model, hardware, batch=batch, seq_len=seq_len, dtype=dtype, **options)


def sum_of_parts(name, result):
    model = MODELS[name]
    return (
        model.layers * result.attention_s
        + model.num_dense_layers * result.dense_mlp_s
        + model.num_moe_layers * result.moe_mlp_s
        + result.ends_s
    )


# DLNetBench's forward seconds for bfloat16 on A100 and GH200; the last two are memory bound.
PUBLISHED = [
    ("vit_h14", 16, None, 0.0171386, 0.00540125),
    ("llama3_8b", 16, None, 6.76623, 2.13239),
    ("minerva_7b", 16, None, 2.93203, 0.924034),
    ("llama3_70b", 16, None, 58.6406, 18.4807),
    ("mixtral_8x7b", 16, None, 61.3471, 19.3336),
    ("llama3_8b", 1, 1, 0.00590610, 0.00295305),
    ("mixtral_8x7b", 1, 16, 0.0322206, 0.0161103),
]


@pytest.mark.parametrize(("name", "batch", "seq_len", "a100_s", "gh200_s"), PUBLISHED)
def test_dlnetbench_times(name, batch, seq_len, a100_s, gh200_s):
    for hardware, published_s in ((A100, a100_s), (GH200, gh200_s)):
        result = times(name, hardware, batch=batch, seq_len=seq_len, convention="dlnetbench")
        assert result.forward_s == pytest.approx(published_s, rel=1e-4)
        assert result.backward_s == 2 * result.forward_s
        assert result.ends_s == 0


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("llama3_8b", 0.939),
        ("llama3_70b", 0.932),
        ("minerva_7b", 0.903),
        ("mixtral_8x7b", 1.071),
        ("vit_h14", 1.000),
    ],
)
def test_ratio_of_dlnetbench_flops_to_the_true_ones(name, ratio):
    """Whole forward pass at the model's own S; the patch projection of a ViT is left out."""
    model = MODELS[name]
    true = forward_flops(model, 16, model.seq_len)
    true -= forward_work(model, 16, model.seq_len).embedding.flops
    counted = forward_flops(model, 16, model.seq_len, "dlnetbench")
    assert round(counted / true, 3) == ratio


def test_ratio_with_the_patch_projection():
    vit = MODELS["vit_h14"]
    ratio = forward_flops(vit, 16, 257, "dlnetbench") / forward_flops(vit, 16, 257)
    assert round(ratio, 3) == 0.999


@pytest.mark.parametrize(
    "name",
    ["llama3_8b", "minerva_7b", "llama3_405b", "mixtral_8x7b", "qwen3_30b_a3b", "qwen3_235b_a22b"],
)
def test_true_flops_are_two_per_active_weight_and_token(name):
    """Matrices: active parameters less token table, norms. Attention: 4 H per causal pair."""
    model = MODELS[name]
    batch, seq_len = 3, 512
    norms = (2 * model.layers + 1) * model.hidden
    norms += 2 * model.layers * model.head_dim if model.qk_norm else 0
    matrices = model.active_parameters - model.vocab * model.hidden - norms
    pairs = model.layers * batch * seq_len**2 / 2
    expected = 2 * batch * seq_len * matrices + 4 * model.heads * model.head_dim * pairs
    assert forward_flops(model, batch, seq_len) == pytest.approx(expected, rel=1e-12)


def test_true_flops_of_deepseek():
    """Latent attention, three dense layers, shared expert, from the numbers of its report."""
    B, S, D = 2, 4096, 7168
    attention = D * 1536 + 1536 * 128 * 192 + D * 576 + 512 * 128 * 256 + 128 * 128 * D
    moe = 3 * D * 2048 * (8 + 1) + D * 256
    weights = 61 * attention + 3 * 3 * D * 18432 + 58 * moe + D * 129280
    scores = 61 * B * 128 * (S * S / 2) * 2 * (192 + 128)
    expected = 2 * B * S * weights + scores
    assert forward_flops(MODELS["deepseek_v3"], B, S) == pytest.approx(expected, rel=1e-12)


def test_true_flops_of_a_vision_transformer():
    B, S, D, L = 5, 257, 1280, 32
    layers = L * (2 * B * S * 12 * D * D + 4 * B * S * S * D)
    ends = 2 * B * 256 * (3 * 14 * 14) * D + 2 * B * D * D
    assert forward_flops(MODELS["vit_h14"], B, S) == pytest.approx(layers + ends, rel=1e-12)


def test_tied_head_is_computed():
    model = MODELS["gpt2_l"]
    assert forward_work(model, 2, 64).head.flops == 2 * 2 * 64 * 1280 * 50_257


def test_attended_pairs():
    assert attended_pairs(MODELS["llama3_8b"], 100) == 5000
    assert attended_pairs(MODELS["vit_b16"], 100) == 10_000
    gpt_oss = MODELS["gpt_oss_120b"]
    assert attended_pairs(gpt_oss, 128) == 128**2 / 2  # the window holds all
    half = (1000 * 128 - 128**2 / 2) / 2
    assert attended_pairs(gpt_oss, 1000) == half + 1000**2 / 4


def test_top_k():
    qwen = MODELS["qwen3_30b_a3b"]
    assert experts_per_token(qwen) == 8
    assert experts_per_token(qwen, "dlnetbench") == 2
    assert experts_per_token(qwen, "dlnetbench", 4) == experts_per_token(qwen, "true", 4) == 4
    assert experts_per_token(MODELS["llama3_8b"], "dlnetbench") == 0

    one, two = (forward_flops(qwen, 1, 64, top_k=k) for k in (1, 2))
    assert two - one == pytest.approx(48 * 2 * 64 * 3 * 2048 * 768, rel=1e-9)
    one, two = (forward_flops(qwen, 1, 64, "dlnetbench", top_k=k) for k in (1, 2))
    assert two - one == pytest.approx(48 * 4 * 64 * 2048 * 768, rel=1e-9)


def test_true_bytes_are_the_weights_and_the_activations():
    """With every expert touched, the weights of all parts are the model's (token rows apart)."""
    for name in ("llama3_8b", "mixtral_8x7b", "deepseek_v3", "gpt_oss_120b"):
        model = MODELS[name]
        work = forward_work(model, 64, 1024, dtype="float32")
        activations = 2 * 64 * 1024 * model.hidden * 4
        layers = (
            model.layers * work.attention.bytes
            + model.num_dense_layers * work.dense_mlp.bytes
            + model.num_moe_layers * work.moe_mlp.bytes
            - 2 * model.layers * activations
        )
        ends = 2 * model.vocab * model.hidden + model.norm_parameters
        assert layers == pytest.approx(4 * (model.parameters - ends), rel=1e-9)
        assert work.head.bytes == model.vocab * model.hidden * 4 + activations
        rows = min(model.vocab, 64 * 1024) * model.hidden
        assert work.embedding == Work(0.0, rows * 4 + activations)


def test_bytes_of_the_ends_of_a_vision_transformer():
    work = forward_work(MODELS["vit_b16"], 4, 197)
    projection = 768 * (768 + 1)  # of patches of 3 * 16 * 16 values
    tables = (1 + 197) * 768  # class token, positions
    assert work.embedding.bytes == (projection + tables + 2 * 4 * 197 * 768) * 2
    pooler = 768 * (768 + 1) + 2 * 768  # with the final norm
    assert work.head.bytes == (pooler + 2 * 4 * 768) * 2


def test_one_token_touches_top_k_experts():
    model = MODELS["mixtral_8x7b"]
    expert = 3 * 4096 * 14_336
    rest = 4096 * 8 + 4096 + 2 * 4096  # router, norm, activations
    assert forward_work(model, 1, 1).moe_mlp.bytes == pytest.approx(2 * (2 * expert + rest))


def test_true_roofline_of_one_layer():
    result = times("llama3_8b", A100)
    work = forward_work(MODELS["llama3_8b"], 16, 8192)
    assert result.attention_s == pytest.approx(work.attention.flops / (312e12 * 0.46))
    assert result.dense_mlp_s == pytest.approx(2 * 16 * 8192 * 3 * 4096 * 14336 / (312e12 * 0.46))
    assert result.head_s == pytest.approx(2 * 16 * 8192 * 4096 * 128_256 / (312e12 * 0.46))
    assert result.embedding_s == pytest.approx(work.embedding.bytes / (1.555e12 * 0.80))
    assert result.moe_mlp_s == 0.0
    assert sum_of_parts("llama3_8b", result) == pytest.approx(result.forward_s)


def test_true_roofline_where_memory_bounds():
    result = times("llama3_8b", A100, batch=1, seq_len=1)
    mlp_bytes = (3 * 4096 * 14_336 + 4096 + 2 * 4096) * 2
    assert result.dense_mlp_s == pytest.approx(mlp_bytes / (1.555e12 * 0.80))
    half = times("llama3_8b", A100, batch=1, seq_len=1, memory_efficiency=0.4)
    assert half.forward_s == pytest.approx(2 * result.forward_s)


def test_mfu_and_dtype_scale_the_compute_bound_parts():
    base = times("llama3_8b", GH200, mfu=0.4)
    assert times("llama3_8b", GH200, mfu=0.2).attention_s == pytest.approx(2 * base.attention_s)
    assert times("llama3_8b", GH200).attention_s == pytest.approx(base.attention_s)  # .35 to .45
    single = times("llama3_8b", GH200, dtype="float32", mfu=0.4)
    assert single.attention_s == pytest.approx(base.attention_s * 990 / 494)


@pytest.mark.parametrize("name", ["deepseek_v3", "vit_h14", "mixtral_8x7b", "tiny"])
@pytest.mark.parametrize("convention", ["true", "dlnetbench"])
def test_parts_sum_to_the_whole(name, convention):
    result = times(name, GH200, convention=convention)
    assert sum_of_parts(name, result) == pytest.approx(result.forward_s, rel=1e-12)
    assert (result.dense_mlp_s > 0) == (MODELS[name].num_dense_layers > 0)
    assert (result.moe_mlp_s > 0) == (MODELS[name].num_moe_layers > 0)


def test_backward_factor():
    assert times("llama3_8b", A100).backward_factor == pytest.approx(2)
    assert times("llama3_8b", A100, recompute=True).backward_factor == pytest.approx(3)
    given = times("llama3_8b", A100, recompute=True, backward_s=7.0)
    assert given.backward_s == 7.0
    assert given.forward_s == times("llama3_8b", A100).forward_s


@pytest.mark.parametrize("convention", ["true", "dlnetbench"])
def test_given_forward_time_keeps_the_proportions_of_the_roofline(convention):
    model = times("mixtral_8x7b", GH200, convention=convention)
    given = times("mixtral_8x7b", GH200, convention=convention, forward_s=0.020, backward_s=0.050)
    assert given.forward_s == 0.020
    assert given.backward_s == 0.050
    assert given.backward_factor == pytest.approx(2.5)
    assert sum_of_parts("mixtral_8x7b", given) == pytest.approx(0.020, rel=1e-12)
    for part in ("attention_s", "moe_mlp_s", "embedding_s", "head_s"):
        ratio = getattr(model, part) / model.forward_s
        assert getattr(given, part) == pytest.approx(0.020 * ratio, rel=1e-12)


def test_given_forward_time_without_hardware_keeps_the_proportions_of_flops():
    given = times("tiny", None, dtype="float32", forward_s=0.020)
    assert given.backward_s == 0.040
    D, S = 256, 128
    attention, mlp = 8 * D * D + 2 * S * D, 16 * D * D
    assert given.attention_s == pytest.approx(0.020 / 8 * attention / (attention + mlp))
    assert given.dense_mlp_s == pytest.approx(0.020 / 8 * mlp / (attention + mlp))
    assert given.ends_s == 0
    # A device that has no peak for the dtype is as good as none.
    assert times("tiny", HARDWARE["mi250x_gcd"], dtype="float32", forward_s=0.020) == given


def test_a_missing_peak_is_an_error_that_names_the_known_dtypes():
    with pytest.raises(InputError, match=r"'mi250x_gcd'.*'float32'; known: bfloat16, float16"):
        times("llama3_8b", HARDWARE["mi250x_gcd"], dtype="float32")
    with pytest.raises(InputError, match="DLNetBench has no peak for hardware 'h100'"):
        times("llama3_8b", HARDWARE["h100"], convention="dlnetbench")
    assert missing_peak(HARDWARE["h100"], "float32") is None
    assert missing_peak(GH200, "float32", "dlnetbench") is None


def test_bad_names_and_no_hardware():
    with pytest.raises(InputError, match="no hardware"):
        times("llama3_8b", None)
    with pytest.raises(InputError, match="unknown dtype 'int4'"):
        times("llama3_8b", A100, dtype="int4")
    with pytest.raises(InputError, match="unknown convention 'dlnetbnch'; did you mean"):
        times("llama3_8b", A100, convention="dlnetbnch")


def test_times_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        times("tiny", A100).forward_s = 1.0  # pyright: ignore[reportAttributeAccessIssue]
