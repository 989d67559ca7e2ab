"""How large a global batch still helps: beyond the critical batch, more samples a step buy little.

McCandlish et al. 2018 (arXiv 1812.06162): up to the gradient noise scale, twice the batch takes
half the steps; far beyond it, as many steps as before. A loss takes 1 + batch / critical times the
samples that small batches would need. The noise scale grows as the loss falls. For language models
Kaplan et al. 2020 (arXiv 2001.08361, section 5.1) fit 2e8 tokens / loss^(1/.21), which is 7.4
million at a loss of 2 nats per token; for images McCandlish et al. give about 15,000 (ImageNet).
Neither number was looked up for this table: unverified.
"""

from __future__ import annotations

from jaxbench.catalog.shape import Model
from jaxbench.units import format_count

LOSS_NATS = 2.0
CRITICAL_TOKENS = 2e8 / LOSS_NATS ** (1 / 0.21)
CRITICAL_IMAGES = 15_000
SOURCE = "arXiv 1812.06162 and 2001.08361; unverified"


def critical_batch(model: Model, seq_len: int) -> int:
    """Return the critical batch in samples of `seq_len` tokens (of images: whatever their size)."""
    return max(1, int(CRITICAL_TOKENS / seq_len)) if model.vocab else CRITICAL_IMAGES


def batch_warning(model: Model, seq_len: int, global_batch: int) -> str | None:
    """Say that a global batch of so many samples is more than converges well; None if it isn't."""
    if global_batch <= critical_batch(model, seq_len):
        return None
    unit, number, limit = "images", global_batch, CRITICAL_IMAGES
    if model.vocab:
        unit, number, limit = "tokens", global_batch * seq_len, CRITICAL_TOKENS
    return (
        f"a global batch of {format_count(number)} {unit} is beyond the critical batch of about "
        f"{limit:,.2g}: the same loss takes {1 + number / limit:.2g} times the samples that small "
        f"batches need ({SOURCE})"
    )
