"""The verbs of the command line: their descriptions, their options, and the recipes they call.

Each function is a verb. Its docstring is the description in the help; its result is the config
whose fields are the options, and a function that imports the recipe. The config is imported when
the verb is used, the recipe only when it runs, so that help is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bertsmith.cli.command import Verb
from bertsmith.core.output import print_json


def demo() -> Verb:
    """Train a small BERT on the documentation of this machine's Python, and try it out."""
    from bertsmith.recipes.config import DemoConfig

    def load() -> Callable[[DemoConfig], object]:
        from bertsmith.recipes.demo.recipe import demo as recipe

        return lambda config: _print_figures(recipe(config), config.json)

    return Verb(DemoConfig, load)


def learn_vocabulary() -> Verb:
    """Learn a vocabulary from your text."""
    from bertsmith.recipes.config import VocabularyConfig

    def load() -> Callable[[VocabularyConfig], object]:
        from bertsmith.recipes.vocabulary import learn_vocabulary as recipe

        return recipe

    return Verb(VocabularyConfig, load)


def extend_vocabulary() -> Verb:
    """Add word pieces to a model's vocabulary, those that shorten your text most.

    The vector of a new piece starts as the mean of those it replaces; pretrain --from trains it.
    """
    from bertsmith.recipes.config import ExtendConfig

    def load() -> Callable[[ExtendConfig], object]:
        from bertsmith.recipes.extend import extend as recipe

        return recipe

    return Verb(ExtendConfig, load)


def prepare() -> Verb:
    """Convert your text to a store of token ids, which pre-training reads.

    Memory does not grow with the text, and the store does not depend on the number of workers.
    After an interruption, or when the disk was full, the same command resumes from STORE.partial.
    """
    from bertsmith.recipes.config import PrepareConfig

    def load() -> Callable[[PrepareConfig], object]:
        from bertsmith.recipes.prepare import dry_run
        from bertsmith.recipes.prepare import prepare as recipe

        return lambda config: dry_run(config) if config.dry_run else recipe(config)

    return Verb(PrepareConfig, load)


def pretrain() -> Verb:
    """Pre-train a BERT on a store, or resume a run that was interrupted.

    Recipes (to show the settings of one: pretrain --recipe roberta --help):
      quick    Our own, which learns most in minutes or hours
      paper    BERT as published: Devlin et al. 2018
      roberta  RoBERTa as published, on your vocabulary: Liu et al. 2019
      albert   ALBERT as published, on your vocabulary: Lan et al. 2019
      modern   ModernBERT as published, on your vocabulary: Warner et al. 2024
      electra  ELECTRA as published: Clark et al. 2020
    """
    from bertsmith.recipes.pretrain.config import PretrainConfig

    def load() -> Callable[[PretrainConfig], object]:
        from bertsmith.core.clock import Clock, command_start
        from bertsmith.recipes.pretrain.recipe import dry_run
        from bertsmith.recipes.pretrain.recipe import pretrain as recipe

        clock = Clock(started=command_start())
        return lambda config: (dry_run if config.dry_run else recipe)(config, clock=clock)

    return Verb(PretrainConfig, load, recipe_settings)


def recipe_settings(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings of the recipe, or those suited to the model that is continued.

    A run that is resumed keeps its own.
    """
    from bertsmith.recipes.pretrain.published import default_settings

    if values.get("store", True) is None:
        return {}
    model, recipe = values.get("model") or "small", values.get("recipe") or "quick"
    settings = default_settings(recipe, model, values.get("from_"), _family(values))
    return {"settings": settings.to_dict()}


def _family(values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return the family that was given, if any."""
    for name in ("settings", "network"):
        inner = values.get(name)
        values = inner if isinstance(inner, Mapping) else {}
    family = values.get("family")
    return family if isinstance(family, str) else None


def list_models() -> Verb:
    """List published models with their parameters and the memory they need.

    The sizes are those of pretrain --model. The memory is that of a whole process that runs the
    encoder on a batch of 4,096 tokens, or that pre-trains it with such batches and AdamW.
    """
    from bertsmith.recipes.config import ModelsConfig

    def load() -> Callable[[ModelsConfig], object]:
        from bertsmith.recipes.resources import as_json, models, show

        return lambda config: print_json(as_json(models())) if config.json else show(models())

    return Verb(ModelsConfig, load)


def finetune() -> Verb:
    """Fine-tune a model on labelled examples, with several seeds.

    The task is detected from the data: one class or several classes for a text or pair, a number,
    relevance to a query, one of several options, tags of words, or answers in a text. The same
    command resumes a run that was stopped.
    """
    from bertsmith.recipes.finetune.config import FinetuneConfig

    def load() -> Callable[[FinetuneConfig], object]:
        from bertsmith.recipes.finetune.recipe import dry_run
        from bertsmith.recipes.finetune.recipe import finetune as recipe

        return lambda config: dry_run(config) if config.dry_run else recipe(config)

    return Verb(FinetuneConfig, load)


def glue() -> Verb:
    """Fine-tune on GLUE's tasks, print the paper's table, and write the leaderboard's zip file.

    Tasks whose files are missing are skipped. The same command resumes a run that was stopped.
    Tasks of earlier calls with the same model and OUT stay in the table and the zip file.
    """
    from bertsmith.recipes.finetune.config import GlueConfig

    def load() -> Callable[[GlueConfig], object]:
        from bertsmith.recipes.glue import glue as recipe

        return lambda config: _print_figures(recipe(config), config.json)

    return Verb(GlueConfig, load)


def compare() -> Verb:
    """Test whether one fine-tuning run is better than another, or only luckier.

    Both must have been evaluated on the same dev examples. The answers of their best seeds are
    compared example by example, with McNemar's test if answers are right or wrong, and with a
    paired bootstrap of the difference of the scores.
    """
    from bertsmith.recipes.finetune.config import CompareConfig

    def load() -> Callable[[CompareConfig], object]:
        from bertsmith.recipes.finetune.compare import compare as recipe

        return lambda config: _print_figures(recipe(config), config.json)

    return Verb(CompareConfig, load)


def distil() -> Verb:
    """Distil a larger model, the teacher, into a small student.

    Methods:
      distilbert  soft targets, labels and cosine of hidden states: Sanh et al. 2019
      tinybert    attention scores and hidden states, then soft targets: Jiao et al. 2020
      minilm      relations of queries, keys, values, then targets and labels: Wang et al. 2021
      static      no layers, one vector for each piece, with the frequencies of a store: Arora et
                  al. 2017

    On a token store the student learns before any task, for --minutes or --steps. On labelled
    examples of the teacher's task it is compared with the teacher, with the same student
    fine-tuned plainly, and with TF-IDF, by score, parameters, size, and speed in the engine. The
    same command resumes a run that was stopped.
    """
    from bertsmith.recipes.distil.config import DistilConfig

    def load() -> Callable[[DistilConfig], object]:
        from bertsmith.core.clock import Clock, command_start
        from bertsmith.recipes.distil.recipe import distil as recipe

        clock = Clock(started=command_start())
        return lambda config: recipe(config, clock=clock)

    return Verb(DistilConfig, load)


def predict() -> Verb:
    """Predict labels, tags, answers or numbers with a fine-tuned model, or fill in [MASK].

    The output has one row for each row of the input, blank ones included; csv and jsonl keep the
    columns of the input. A pre-trained model fills in [MASK], and predicts whether the second text
    of a pair, separated by a tab, follows the first; if it was pre-trained from left to right, it
    continues each text.
    """
    from bertsmith.recipes.predict.config import PredictConfig

    def load() -> Callable[[PredictConfig], object]:
        from bertsmith.recipes.predict.recipe import predict as recipe

        return recipe

    return Verb(PredictConfig, load)


def evaluate() -> Verb:
    """Score a fine-tuned model on labelled examples, with 95 % intervals.

    Labels are compared by name, whatever their order in the file.
    """
    from bertsmith.recipes.predict.config import EvaluateConfig

    def load() -> Callable[[EvaluateConfig], object]:
        from bertsmith.recipes.predict.evaluate import evaluate as recipe

        return lambda config: _print_figures(recipe(config), config.json)

    return Verb(EvaluateConfig, load)


def score() -> Verb:
    """Score texts by how well a pre-trained model predicts their tokens; compare pairs.

    The score of a text is its pseudo-log-likelihood, with each token masked in turn (Salazar et al.
    2020), or the log-likelihood of a model that reads from left to right. In a pair, in two columns
    or separated by a tab, the better text comes first; the output includes the share of pairs whose
    first text scores higher.
    """
    from bertsmith.recipes.predict.config import ScoreConfig

    def load() -> Callable[[ScoreConfig], object]:
        from bertsmith.recipes.predict.score import score as recipe

        return recipe

    return Verb(ScoreConfig, load)


def write() -> Verb:
    """Write text with a pre-trained model, from a prompt or from nothing.

    A masked model fills masks after the prompt: in a few passes over the text (mask-predict), or
    with one or more passes for each token. A left-to-right model appends one token in each pass.
    The number of passes is printed.
    """
    from bertsmith.recipes.predict.config import WriteConfig

    def load() -> Callable[[WriteConfig], object]:
        from bertsmith.recipes.predict.write import write as recipe

        return recipe

    return Verb(WriteConfig, load)


def explain() -> Verb:
    """Explain the answers of a fine-tuned model by the words of the texts.

    For classes, numbers, tags and answers in texts. The shares of integrated gradients add up to
    the difference of the answer's logit between the text and a text of masks; the share of a word
    in leave-one-out is the loss of the logit when the word is masked. --deletion tests the shares.
    """
    from bertsmith.recipes.config import ExplainConfig

    def load() -> Callable[[ExplainConfig], object]:
        from bertsmith.recipes.explain import explain as recipe

        return recipe

    return Verb(ExplainConfig, load)


def quantize() -> Verb:
    """Make a copy of a model that answers in int8, if that is faster here and as good.

    Speed is measured on this processor at the lengths of your texts, the score on your labelled
    examples. The command refuses, and shows the table, if int8 is not faster or loses more than
    half a point. A model without a head is judged by its vectors: their mean cosine with those of
    fp32 must be at least 0.997, or, with pairs of texts and a number as --dev, Spearman's
    correlation may lose half a point. OUT keeps the original weights, and transformers loads it.
    """
    from bertsmith.recipes.config import QuantizeConfig

    def load() -> Callable[[QuantizeConfig], object]:
        from bertsmith.recipes.quantize import quantize as recipe

        return lambda config: _print_figures(recipe(config), config.json)

    return Verb(QuantizeConfig, load)


def export() -> Verb:
    """Export a model for another runtime: ONNX, OpenVINO, torch.export, or transformers.js.

    For every head of every family, batches of any size and texts of any length. Inputs and outputs
    have the names that transformers and optimum use. The result is compared with the engine, and
    refused if the two differ by more than 1e-5.
    """
    from bertsmith.recipes.export.config import ExportConfig

    def load() -> Callable[[ExportConfig], object]:
        from bertsmith.recipes.export.recipe import export as recipe

        return lambda config: _print_figures(recipe(config), config.json)

    return Verb(ExportConfig, load)


def embed() -> Verb:
    """Write the vectors of texts, of their words or of their tokens, to a file.

    A sentence-transformers folder pools and normalises as its files say. For other folders, the
    vector of a text is the mean of its tokens, or its last token if the model reads from left to
    right, since only this token has seen the others.

    Layers:
      0 to L          by number; 0, or embeddings, is the input of the first layer
      first, last, second-to-last, sum-last-4, concat-last-4, sum-all
      mix:W,W,...     a weight for each layer; mix:FILE, learned ones as JSON (Peters et al. 2018)

    Pooling:
      cls, mean, max, mean-sqrt-length, weighted-mean, last-token, or several: cls+mean
      pooler          the model's own, on the last layer
      token           a vector for each token
      word-mean, word-first, word-sum    a vector for each word, from its pieces
    """
    from bertsmith.recipes.config import EmbedConfig

    def load() -> Callable[[EmbedConfig], object]:
        from bertsmith.recipes.embed import embed as recipe

        return recipe

    return Verb(EmbedConfig, load)


def serve() -> Verb:
    """Serve models over HTTP, to programs and on a page to try them.

    /answer is for every model, /v1/embeddings follows OpenAI, and /embed, /predict, /rerank and
    others follow text-embeddings-inference; /openapi.json describes them. After SIGTERM, requests
    in progress are still answered. Connections are not encrypted: put a proxy in front of the
    server if it is reachable from other machines.
    """
    from bertsmith.serving.config import ServeConfig

    def load() -> Callable[[ServeConfig], object]:
        from bertsmith.serving.server import serve as recipe

        return recipe

    return Verb(ServeConfig, load)


def inspect() -> Verb:
    """Show what the attention heads of a model do on your text, as a page of figures.

    A dependency treebank (CoNLL-U) also shows which heads find which relations between words;
    tagged words show which heads attend from tag to tag and within entities; documents with
    coreference show which heads find antecedents. Simple rules and random weights stand beside
    them for comparison. Memory does not grow with the text.
    """
    from bertsmith.recipes.config import InspectConfig

    def load() -> Callable[[InspectConfig], object]:
        from bertsmith.recipes.inspect import inspect as recipe

        return lambda config: _print_figures(recipe(config), config.json)

    return Verb(InspectConfig, load)


def convert() -> Verb:
    """Convert weights in another format to a model folder, or a model folder to Google's format.

    The format of SOURCE is detected from its files:
      pickled     pytorch_model.bin (or any .bin, .pt, .pth), one file or several with an index;
                  opened in a process with limits, which runs no code from the file
      safetensors model.fp16.safetensors and the like, one file or several with an index, and
                  model.safetensors with its vocabulary one folder up
      fairseq     a RoBERTa's model.pt with dict.txt, encoder.json and vocab.bpe beside it
      TensorFlow  bert_model.ckpt.index and .data-... of google-research/bert or /albert with
                  bert_config.json and vocab.txt beside them; TensorFlow is not needed
    config.json and the vocabulary are beside the weights, or one folder up.
    OUT/conversion.json lists for every tensor where it went.
    """
    from bertsmith.recipes.config import ConvertConfig

    def load() -> Callable[[ConvertConfig], object]:
        from bertsmith.recipes.convert import convert as recipe

        return recipe

    return Verb(ConvertConfig, load)


def push() -> Verb:
    """Upload a model folder to the hub, with a model card.

    The folder is loaded first, as a check. Missing fields are added to the header of its README.md,
    which the hub reads; what you wrote there stays. Only the model's files are uploaded: no
    checkpoints, logs or data. You must be signed in: set HF_TOKEN, or run hf auth login.
    """
    from bertsmith.recipes.config import PushConfig

    def load() -> Callable[[PushConfig], object]:
        from bertsmith.recipes.push import push as recipe

        return recipe

    return Verb(PushConfig, load)


def _print_figures(figures: Mapping[str, Any], as_json: bool) -> Mapping[str, Any]:
    """Return figures, printed if they are asked for as JSON."""
    if as_json:
        print_json(figures)
    return figures
