"""What a transformer is made of, and the parameters that follow from it, counted exactly.

Letters: D hidden, H = heads * head_dim, K = kv_heads * head_dim, F d_ff, V vocab, E experts.
A matrix of a x b has a*b parameters, its bias b, an RMS norm D, a layer norm 2 D.
"""

from __future__ import annotations

from dataclasses import dataclass

CHANNELS = 3  # of an image


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Queries and keys have `head_dim` elements without and `rotary_dim` with rotary position;
    both come from vectors compressed to the two ranks.
    """

    query_rank: int
    kv_rank: int
    rotary_dim: int
    value_dim: int


@dataclass(frozen=True, kw_only=True)
class Model:
    """One transformer. All counts are elements, of the whole model unless a name says otherwise."""

    name: str
    source: str
    published_parameters: int
    published_nonexpert_parameters: int | None = None  # mixture-of-experts models only

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    d_ff: int  # of one expert where there are experts
    mlp_matrices: int  # 2, or 3 where the feed-forward is gated
    seq_len: int  # tokens per sample, class token included
    vocab: int = 0  # 0: no token table and no language-model head
    tied: bool = False  # the head is the token table

    experts: int = 0  # routed experts per layer
    top_k: int = 0  # routed experts per token
    shared_experts: int = 0  # every token passes them too
    first_dense_layers: int = 0  # leading layers without experts, in a model that has them
    first_dense_d_ff: int = 0

    causal: bool = True
    window: int = 0  # tokens seen by a layer with sliding-window attention
    windowed_layers: int = 0
    latent: LatentAttention | None = None

    layer_norm: bool = False  # layer norms (scale and bias) instead of RMS norms
    biases: bool = False  # on every matrix of attention, feed-forward and experts
    router_bias: bool = False
    qk_norm: bool = False  # a norm over head_dim for queries and one for keys
    sinks: bool = False  # a learned attention sink per head
    learned_positions: bool = False
    patch: int = 0  # edge of an image patch in pixels: patches and a class token, no vocabulary
    pooler: bool = False  # a square matrix and its bias on the class token

    given_parameters: int | None = None  # stated, not derived: shape and count are independent
    given_expert_parameters: int = 0

    # Structure

    @property
    def num_moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.first_dense_layers if self.experts else 0

    @property
    def num_dense_layers(self) -> int:
        """Layers with an ordinary feed-forward part."""
        return self.layers - self.num_moe_layers

    def is_moe_layer(self, index: int) -> bool:
        """Whether layer `index` (0 <= index < layers) has experts."""
        return self.experts > 0 and index >= self.first_dense_layers

    @property
    def dense_d_ff(self) -> int:
        """Width of the feed-forward part of a dense layer."""
        return self.first_dense_d_ff or self.d_ff

    # Parameters of one part

    @property
    def norm_parameters(self) -> int:
        """One norm over the hidden dimension."""
        return self.hidden * (2 if self.layer_norm else 1)

    @property
    def attention_weights(self) -> int:
        """The projection matrices of one layer, without biases."""
        D, heads, head_dim = self.hidden, self.heads, self.head_dim
        if self.latent is None:
            return 2 * D * heads * head_dim + 2 * D * self.kv_heads * head_dim
        q, kv = self.latent.query_rank, self.latent.kv_rank
        rotary, value = self.latent.rotary_dim, self.latent.value_dim
        query = D * q + q * heads * (head_dim + rotary)
        key_value = D * (kv + rotary) + kv * heads * (head_dim + value)
        return query + key_value + heads * value * D

    @property
    def attention_parameters(self) -> int:
        """The attention part of one layer, with its norm."""
        H, K = self.heads * self.head_dim, self.kv_heads * self.head_dim
        count = self.attention_weights + self.norm_parameters
        count += H + 2 * K + self.hidden if self.biases else 0
        count += 2 * self.head_dim if self.qk_norm else 0
        count += self.heads if self.sinks else 0
        count += self.latent.query_rank + self.latent.kv_rank if self.latent else 0  # two norms
        return count

    def feed_forward_parameters(self, d_ff: int) -> int:
        """One feed-forward network (or expert) of width `d_ff`, without a norm."""
        bias = (self.mlp_matrices - 1) * d_ff + self.hidden if self.biases else 0
        return self.mlp_matrices * self.hidden * d_ff + bias

    @property
    def dense_mlp_parameters(self) -> int:
        """The feed-forward part of one dense layer, with its norm."""
        return self.feed_forward_parameters(self.dense_d_ff) + self.norm_parameters

    @property
    def parameters_of_one_expert(self) -> int:
        """One routed expert of one layer."""
        return self.feed_forward_parameters(self.d_ff)

    @property
    def moe_nonexpert_parameters(self) -> int:
        """Norm, router and shared experts of one layer with experts."""
        router = self.hidden * self.experts + (self.experts if self.router_bias else 0)
        shared = self.shared_experts * self.feed_forward_parameters(self.d_ff)
        return self.norm_parameters + router + shared

    @property
    def patch_elements(self) -> int:
        """Values of one image patch, the input of the patch projection; 0 for a language model."""
        return CHANNELS * self.patch * self.patch

    @property
    def embedding_parameters(self) -> int:
        """Token table, or patch projection with bias and class token; learned positions."""
        D = self.hidden
        image = self.patch_elements * D + D + D if self.patch else 0
        positions = self.seq_len * D if self.learned_positions else 0
        return self.vocab * D + image + positions

    @property
    def head_parameters(self) -> int:
        """Final norm, untied language-model head, pooler."""
        D = self.hidden
        head = 0 if self.tied else self.vocab * D
        return self.norm_parameters + head + (D * D + D if self.pooler else 0)

    # Parameters of the whole model

    @property
    def expert_parameters(self) -> int:
        """All routed experts, their biases included."""
        if self.given_parameters is not None:
            return self.given_expert_parameters
        return self.num_moe_layers * self.experts * self.parameters_of_one_expert

    @property
    def nonexpert_parameters(self) -> int:
        """Everything but the routed experts (routers and shared experts are in)."""
        if self.given_parameters is not None:
            return self.given_parameters - self.given_expert_parameters
        return (
            self.embedding_parameters
            + self.layers * self.attention_parameters
            + self.num_dense_layers * self.dense_mlp_parameters
            + self.num_moe_layers * self.moe_nonexpert_parameters
            + self.head_parameters
        )

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.nonexpert_parameters + self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """The parameters that one token passes: top_k of the experts, and all the rest."""
        if not self.experts:
            return self.parameters
        return self.nonexpert_parameters + self.expert_parameters // self.experts * self.top_k
