"""Published recipes: the pre-training of BERT, RoBERTa, ALBERT, ModernBERT and ELECTRA; our own.

They follow the papers, made for many accelerators and days: a step reads from 33,000 to over 4
million tokens. To try one of them in minutes, reduce the tokens per step:

    --gradient-accumulation 1 --tokens-per-batch 4096

and expect less than from `quick`, whose steps suit such a budget. Held-out loss of tiny (2 layers
of 128) on thirty novels, 8,000 pieces, after 250 such steps, a million tokens: quick 6.03, roberta
6.36, paper 7.45, albert 7.59 (docs/experiments/optimisers-and-starts.md). Shares of the budget are
the papers': a run of any length warms up for the same share of it as the published run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bertsmith.batches.config import MaskingConfig, Phase, SampleConfig, Text
from bertsmith.core.errors import ConfigError
from bertsmith.hub.models import model_folder
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.families.family import FamilyName
from bertsmith.recipes.pretrain.config import NetworkConfig, PretrainSettings, electra_masking
from bertsmith.training.config import OptimiserConfig, ScheduleConfig

_LARGE = ("large", "xlarge", "xxlarge")


def paper(model: str) -> PretrainSettings:
    """BERT as published: Devlin et al. 2018.

        bertsmith pretrain store --recipe paper --out run --model base --steps 1000000

    Section 3.1 and appendix A.2: masks of 15 % of the tokens, made once for ten copies of the text,
    and next sentence; sequences of 128 tokens for nine tenths of the steps, then of 512; 256 of
    them a step, here in 8 batches, whose gradients add up. AdamW at 1e-4, warming up for 10,000 of
    the million steps, then falling linearly to zero; dropout 0.1.

    Cost: 43 billion tokens; the authors needed four days on 16 TPU chips for base. Expected of
    base: 84.4 % on MNLI, 92.7 % on SST-2, F1 of 88.5 on SQuAD 1.1 (development sets, table 5).
    """
    return PretrainSettings(
        network=NetworkConfig(
            hidden_dropout=0.1, attention_dropout=0.1, position_initialisation="random"
        ),
        samples=SampleConfig(
            max_length=512, tokens_per_batch=32 * 512, text="next_sentence", copies=10
        ),
        phases=(Phase(share=0.9, max_length=128, tokens_per_batch=32 * 128),),
        gradient_accumulation=8,
        optimiser=OptimiserConfig(
            learning_rate=1e-4, beta_2=0.999, epsilon=1e-6, weight_decay=0.01
        ),
        schedule=ScheduleConfig(warmup=0.01, decay="linear"),
    )


def roberta(model: str) -> PretrainSettings:
    """RoBERTa as published, on your vocabulary: Liu et al. 2019.

        bertsmith vocab learn CORPUS --kind byte-bpe --size 50265 --out vocab
        bertsmith prepare CORPUS --vocab vocab --out store
        bertsmith pretrain store --recipe roberta --out run --model base --steps 500000

    Sections 4 and 5 and table 9: new masks each epoch, full sentences that go on into the next
    document and no next sentence; 8,192 sequences of 512 tokens a step, here in 256 batches. AdamW
    at 6e-4 (4e-4 from large on) with a second moment of 0.98, warming up for 24,000 (30,000) of
    500,000 steps, then falling linearly; dropout 0.1, gradients of any length. The vocabulary is
    your store's: the published one has byte-level BPE of 50,265 entries, as above.

    Cost: 2.1 trillion tokens; the authors needed a day on 1,024 V100s for a fifth of that with
    large. Expected, of 160 GB of text: base 87.6 % on MNLI and 94.8 % on SST-2, large 90.2 % and
    96.4 % (development sets, as released).
    """
    large = model in _LARGE
    return PretrainSettings(
        network=NetworkConfig(
            family="roberta",
            hidden_dropout=0.1,
            attention_dropout=0.1,
            position_initialisation="random",
        ),
        samples=SampleConfig(max_length=512, tokens_per_batch=32 * 512, text="across_documents"),
        gradient_accumulation=256,
        optimiser=OptimiserConfig(
            learning_rate=4e-4 if large else 6e-4, beta_2=0.98, epsilon=1e-6, weight_decay=0.01
        ),
        schedule=ScheduleConfig(warmup=0.06 if large else 0.048, decay="linear"),
        max_gradient_norm=0.0,
    )


def albert(model: str) -> PretrainSettings:
    """ALBERT as published, on your vocabulary: Lan et al. 2019.

        bertsmith vocab learn CORPUS --kind unigram --out vocab
        bertsmith prepare CORPUS --vocab vocab --out store
        bertsmith pretrain store --recipe albert --out run --model base --steps 125000

    Section 4.1: one block for all layers and tables 128 wide; masks of one to three whole words
    and sentence order; 4,096 sequences of up to 512 tokens a step, a tenth of them shorter, here
    in 128 batches. LAMB at 0.00176, warming up for 3,125 of 125,000 steps, then falling linearly;
    no dropout (section 4.8). The vocabulary is your store's: the published one is SentencePiece's
    unigram of 30,000 pieces, as above.

    Cost: 262 billion tokens; sharing the layers of an ALBERT saves memory, not computation, so
    base is no faster than BERT's. Expected, of the first release: base 81.6 % on MNLI, 90.3 % on
    SST-2 and F1 of 89.3 on SQuAD 1.1, xxlarge, after 1.5 million steps, 90.8 %, 96.9 % and 94.8.
    """
    return PretrainSettings(
        network=NetworkConfig(
            family="albert",
            activation="gelu_tanh",
            hidden_dropout=0.0,
            attention_dropout=0.0,
            position_initialisation="random",
        ),
        samples=SampleConfig(
            max_length=512,
            tokens_per_batch=32 * 512,
            text="sentence_order",
            short_sequences=0.1,
            masking=MaskingConfig(unit="ngram"),
        ),
        gradient_accumulation=128,
        optimiser=OptimiserConfig(
            algorithm="lamb", learning_rate=0.00176, beta_2=0.999, epsilon=1e-6, weight_decay=0.01
        ),
        schedule=ScheduleConfig(warmup=0.025, decay="linear"),
    )


def electra(model: str) -> PretrainSettings:
    """ELECTRA as published: Clark et al. 2020.

        bertsmith pretrain store --recipe electra --out run --model small --steps 1000000

    Section 3 and tables 6 and 7: a generator a quarter as wide fills 15 % of the tokens (25 % for
    large), of which it sees 15 % as they are, as in the released code, and masks of the others; the
    model tells which are original; that loss weighs 50. A step has 128 sequences of 128 tokens for
    small, 256 of 512 for base (8 batches), 2,048 for large (64). AdamW at 5e-4 (2e-4 from base on),
    warming up for 10,000 of 1,000,000 steps (766,000, 400,000), then falling linearly; dropout 0.1.
    The generator is not saved; that published of base is wider.

    Cost: 16 billion tokens for small; the authors needed four days on one V100. Expected: GLUE
    scores of 79.9 for small and 85.1 for base (table 8).
    """
    small, large = model not in ("base", *_LARGE), model in _LARGE
    longest = 128 if small else 512
    masking = electra_masking(large=large)
    return PretrainSettings(
        network=NetworkConfig(
            family="electra", hidden_dropout=0.1, attention_dropout=0.1,
            position_initialisation="random",
        ),
        samples=SampleConfig(
            max_length=longest, tokens_per_batch=(128 if small else 32) * longest,
            text="within_documents", replaced_tokens=True, masking=masking,
        ),
        gradient_accumulation=1 if small else 64 if large else 8,
        optimiser=OptimiserConfig(
            learning_rate=5e-4 if small else 2e-4, beta_2=0.999, epsilon=1e-6, weight_decay=0.01
        ),
        schedule=ScheduleConfig(
            warmup=0.01 if small else 0.025 if large else 0.013, decay="linear"
        ),
    )  # fmt: skip


def modern(model: str) -> PretrainSettings:
    """ModernBERT as published, on your vocabulary: Warner et al. 2024.

        bertsmith pretrain store --recipe modern --out run --model base --steps 364000

    Section 3 and table 3, the first and longest of three phases: 30 % of the tokens masked, no next
    sentence; 4,608 sequences of 1,024 tokens a step, here in 144 batches. AdamW at 8e-4 (5e-4 from
    large on), warming up for 0.17 % of the steps, then constant, falling as 1 minus a root over the
    last 2.5 %. The network takes 8,192 tokens; for longer texts continue as in the second phase:

        bertsmith pretrain store --from run/model --out longer --steps 424000
            --gradient-accumulation 72 --max-length 8192 --learning-rate 3e-4

    The published one has StableAdamW, a growing number of sequences per step, dropout of 0.1 on the
    output of attention, other wavelengths of the global layers' positions until the second phase,
    and byte-level BPE of 50,368 entries instead of the vocabulary of your store.

    Cost: 1.7 trillion tokens, and 0.3 of the longer ones. Expected: base 89.1 % on MNLI and 96.0 %
    on SST-2, large 90.8 % and 97.1 % (development sets, table 5).
    """
    large = model in _LARGE
    return PretrainSettings(
        network=NetworkConfig(
            family="modernbert", max_positions=8192, hidden_dropout=0.0, attention_dropout=0.0
        ),
        samples=SampleConfig(
            max_length=1024,
            tokens_per_batch=32 * 1024,
            text="within_documents",
            masking=MaskingConfig(probability=0.3),
        ),
        gradient_accumulation=144,
        # a decay of 1e-5 a step, whatever the rate: this one is multiplied by it
        optimiser=OptimiserConfig(
            learning_rate=5e-4 if large else 8e-4,
            beta_2=0.98,
            epsilon=1e-6,
            weight_decay=1e-5 / (5e-4 if large else 8e-4),
        ),
        schedule=ScheduleConfig(warmup=0.0017, hold=0.9733, decay="root"),
        max_gradient_norm=0.0,
    )


def quick(model: str) -> PretrainSettings:
    """Our own, which learns most in minutes or hours.

        bertsmith pretrain store --out run --model mini --minutes 30

    Initial weights are computed from counts of neighbouring tokens in some seconds
    (recipes/pretrain/starting.py): frequencies, interchangeable tokens, and heads that
    attend to neighbours. From random weights a small BERT needs its first minutes to learn these.
    The layers' matrices are trained by Muon; a quarter of the tokens is masked (Wettig et al. 2022:
    more targets per sequence), with held-out figures at the paper's 15 %; there is no dropout, as a
    small budget sees little text twice. The saved model is a plain BERT in every byte.

    Two cores read 14,000 tokens/s with a mini (4 layers, 256) of 30,522 pieces. Its masked words on
    novels held out, without next sentence: a loss of 4.26 after 1 minute of 2, 4.00 after both,
    where transformers' run_mlm is at 6.2 after 5 (docs/experiments/optimisers-and-starts.md).
    """
    return PretrainSettings(
        network=NetworkConfig(
            initialisation="neighbours", hidden_dropout=0.0, attention_dropout=0.0
        ),
        samples=SampleConfig(tokens_per_batch=4096, masking=MaskingConfig(probability=0.25)),
        optimiser=OptimiserConfig(
            learning_rate=1e-3,
            beta_2=0.95,
            matrices="muon",
            muon_learning_rate=0.03,
            muon_momentum=0.9,
        ),
        schedule=ScheduleConfig(warmup=0.02),
    )


Recipe = Callable[[str], PretrainSettings]
"""Return the settings for a model size."""

RECIPES: dict[str, Recipe] = {
    "quick": quick,
    "paper": paper,
    "roberta": roberta,
    "albert": albert,
    "modern": modern,
    "electra": electra,
}


def default_settings(
    recipe: str, model: str, parent: str | Path | None = None, family: FamilyName | None = None
) -> PretrainSettings:
    """Return the initial settings of a run: the recipe's, or those suited to `parent`.

    A recipe is for one family; for another `family`, objective and initial weights that this one
    cannot have are replaced. Raises `ConfigError` for an unknown recipe, `ModelFolderError` for the
    parent.
    """
    if parent is not None:
        # torch is not needed for a recipe, nor for the help
        from bertsmith.recipes.pretrain.starting import continued

        return continued(model_folder(parent))
    if recipe not in RECIPES:
        raise ConfigError(f"no recipe {recipe!r}", remedy=f"recipes are {', '.join(RECIPES)}")
    settings = RECIPES[recipe](model)
    # a name that is none is refused with the other options
    if family is None or family not in FAMILIES or family == settings.network.family:
        return settings
    return _of_family(settings, family, model)


def _of_family(settings: PretrainSettings, name: FamilyName, model: str) -> PretrainSettings:
    """Return a recipe's settings for a family that it was not made for."""
    family = FAMILIES[name]
    samples, network = settings.samples, replace(settings.network, family=name)
    if samples.pairs:
        text: Text = family.pairs or "within_documents"
        samples = replace(samples, text=text)
    if samples.replaced_tokens and not family.replaced_tokens:
        samples = replace(samples, replaced_tokens=False, masking=MaskingConfig())
    size = family.size(model)
    narrow = "embedding" in family.wiring or (size is not None and size.embedding is not None)
    if narrow or family.wiring.get("positions", "learned") != "learned":
        # counts of neighbours need columns for positions in token rows that are the states
        network = replace(network, initialisation="random")
    return replace(settings, network=network, samples=samples)
