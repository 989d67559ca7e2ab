"""Every row of the model catalog against its published counts; the structure of odd ones."""

import dataclasses

import pytest

from jaxbench.catalog.models import MODELS, find_model
from jaxbench.errors import InputError

ROWS = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())

# The same counts, written a second time so that a slip in a row does not go unseen.
PUBLISHED = {
    "vit_b16": 86_389_248,
    "vit_l16": 304_351_232,
    "vit_h14": 632_404_480,
    "gpt2_l": 774_030_080,
    "gpt2_xl": 1_557_611_200,
    "minerva_7b": 7_399_542_784,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama3_405b": 405_853_388_800,
    "mixtral_8x7b": 46_702_792_704,
    "qwen3_30b_a3b": 30_532_122_624,
    "qwen3_235b_a22b": 235_093_634_560,
    "gpt_oss_120b": 116_829_156_672,
    "deepseek_v3": 671_026_419_200,
    "tiny": 2_000_003,
    "tiny_moe": 2_000_000,
}
PUBLISHED_NONEXPERT = {
    "mixtral_8x7b": 1_605_636_096,
    "qwen3_30b_a3b": 1_541_093_376,
    "qwen3_235b_a22b": 7_997_238_784,
    "gpt_oss_120b": 2_127_557_952,
    "deepseek_v3": 17_117_648_384,
    "tiny_moe": 400_000,
}


@ROWS
def test_counts_equal_the_published_ones(model):
    nonexpert = model.published_nonexpert_parameters or model.published_parameters
    assert isinstance(model.parameters, int)
    assert model.parameters == model.published_parameters
    assert model.nonexpert_parameters == nonexpert
    assert model.expert_parameters == model.published_parameters - nonexpert


def test_published_counts_of_the_rows_are_those_of_the_reference():
    assert {name: m.published_parameters for name, m in MODELS.items()} == PUBLISHED
    nonexpert = {name: m.published_nonexpert_parameters for name, m in MODELS.items() if m.experts}
    assert nonexpert == PUBLISHED_NONEXPERT


def test_only_the_tiny_rows_state_their_count():
    given = [name for name, model in MODELS.items() if model.given_parameters is not None]
    assert given == ["tiny", "tiny_moe"]


@ROWS
def test_rows_are_named_sourced_and_consistent(model):
    assert MODELS[model.name] is model
    assert model.source
    assert model.num_dense_layers + model.num_moe_layers == model.layers
    moe = [model.is_moe_layer(index) for index in range(model.layers)]
    assert moe == [False] * model.num_dense_layers + [True] * model.num_moe_layers
    assert model.heads % model.kv_heads == 0
    assert 0 <= model.top_k <= model.experts
    assert (model.vocab > 0) + (model.patch > 0) <= 1


def test_layers_of_models_with_and_without_experts():
    structure = {name: (m.num_dense_layers, m.num_moe_layers) for name, m in MODELS.items()}
    assert structure["llama3_8b"] == (32, 0)
    assert structure["mixtral_8x7b"] == (0, 32)
    assert structure["deepseek_v3"] == (3, 58)


def test_active_parameters():
    assert MODELS["mixtral_8x7b"].active_parameters == pytest.approx(12.88e9, rel=1e-4)
    assert MODELS["llama3_8b"].active_parameters == 8_030_261_248
    assert MODELS["deepseek_v3"].active_parameters == pytest.approx(37e9, rel=0.02)
    assert MODELS["tiny_moe"].active_parameters == 800_000


def test_a_tied_head_is_counted_once():
    gpt2 = MODELS["gpt2_xl"]
    untied = dataclasses.replace(gpt2, tied=False)
    assert untied.parameters - gpt2.parameters == 50_257 * 1600


def test_expert_biases_belong_to_the_experts():
    gpt_oss = MODELS["gpt_oss_120b"]
    without = dataclasses.replace(gpt_oss, biases=False)
    biases = 36 * 128 * (2 * 2880 + 2880)
    assert gpt_oss.expert_parameters - without.expert_parameters == biases


def test_a_row_can_be_found_by_name():
    assert find_model("llama3_70b").layers == 80


def test_an_unknown_model_lists_the_known_ones():
    with pytest.raises(InputError, match="unknown model 'lama3_8b'; did you mean 'llama3_8b'"):
        find_model("lama3_8b")
