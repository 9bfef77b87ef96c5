"""Model folders of sentence-transformers: how they pool, and what they do with what is pooled.

    modules.json                       the modules in their order, each with a folder and a class
    sentence_bert_config.json          the longest text in tokens, and whether it is lower-cased
    1_Pooling/config.json              how tokens become one vector
    2_Dense/config.json, .safetensors  a linear map of it
    config_sentence_transformers.json  prompts that are written before texts, how many features of
                                       a vector are kept, and how the library compares vectors

A static model has the module StaticEmbedding, in the folder itself or in one of its own: a vector
for each piece of a vocabulary, of which that of a text is the mean, without special tokens. Modules
that bring it to length 1 may follow.

    modules.json        the modules
    model.safetensors   embedding.weight, (pieces, width)
    tokenizer.json      and the tokenizer's other files; the longest text, in its truncation

A module that we do not know is refused by its name; nothing that a file names is imported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.core.files import name_is_taken, read_json, write_json
from bertsmith.core.log import say
from bertsmith.core.ownership import new_folder
from bertsmith.core.printable import shell_word
from bertsmith.network.config import EncoderConfig, VectorPooling
from bertsmith.network.model import Model
from bertsmith.network.pooling import ACTIVATIONS, AfterPooling, Dense, Truncation, UnitLength
from bertsmith.tokens.folder import files
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.config_json import PROMPTS_FILE
from bertsmith.weights.folder import CARD_FILE, check_file, save_model
from bertsmith.weights.tensors import WEIGHTS_FILE, TensorFile, write_tensors

MODULES_FILE = "modules.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
POOLINGS: dict[str, VectorPooling] = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt-length",
    "weightedmean": "weighted-mean",
    "lasttoken": "last-token",
}
"""The library's names of kinds of pooling, in the order in which it puts several end to end."""

FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The same as its older versions write them: a flag each."""

TRANSFORMER_FILES = (
    TRANSFORMER_FILE, "sentence_roberta_config.json", "sentence_distilbert_config.json",
    "sentence_camembert_config.json", "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json", "sentence_xlnet_config.json",
)  # fmt: skip
"""The names that this file has had, in the order in which the library looks for them."""

_KNOWN = re.compile(r"sentence_transformers(\.\w+)*\.(Transformer|Pooling|Normalize|Dense)")
_PLACE = re.compile(r"\w[\w.-]{0,100}")
_MAX_FILE_BYTES = 2**20
_MAX_SIDE_FILE_BYTES = 2**16


@dataclass(frozen=True, kw_only=True)
class SentenceSettings:
    """The steps of a sentence-transformers folder after its encoder.

    `network` is the folder that the encoder is in; `longest` tokens a text, None for as many as
    the encoder reads; `after` are the layers on what is pooled; `prompts` by name. `similarity` is
    kept for the library, which compares vectors by it; None for its default, the cosine.
    """

    network: Path
    pool: tuple[VectorPooling, ...] = ("mean",)
    after: tuple[AfterPooling, ...] = ()
    longest: int | None = None
    lowercase: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str | None = None

    def prompt(self, name: str | None) -> str:
        """Return the text of a prompt, the folder's own if no name is given; `ConfigError`."""
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise ConfigError(f"there is no prompt {name!r}", remedy=f"the folder has {known}")
        return self.prompts[name]


def read_sentence_folder(
    folder: Path, *, unpickled: Callable[[Path], Path] | None = None
) -> SentenceSettings | None:
    """Return the settings of a sentence-transformers folder; None for another kind of folder.

    A cross-encoder of the library is of another kind: it has a head in place of pooling.
    `unpickled` returns a file of safetensors for one of pickled weights; without it they are
    refused. Raises `ModelFolderError` for a folder that is damaged, or asks for what we do not
    follow.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return None
    if is_static(folder):
        raise _refused("is of a static model, which has no layers", path, "only embed opens it")
    entries = read_json(path, ModelFolderError, kind=list, largest=_MAX_FILE_BYTES)
    modules = [_module(entry, path) for entry in entries]
    _check_names(entries, path)
    kinds = [kind for kind, _ in modules]
    if modules == [("Transformer", "")] and _is_cross_encoder(folder):
        return None
    if kinds[:2] != ["Transformer", "Pooling"] or not {*kinds[2:]} <= {"Dense", "Normalize"}:
        raise _refused(
            f"its modules are {', '.join(kinds) or 'none'}",
            path,
            "a Transformer, a Pooling, then Dense or Normalize is supported",
        )
    places = [folder / place for _, place in modules]
    pool, width = _pooling(places[1] / "config.json", folder)
    after: list[AfterPooling] = []
    for kind, place in zip(kinds[2:], places[2:], strict=True):
        dense = kind == "Dense"
        after.append(_dense(place, folder, width, unpickled) if dense else _unit(place, folder))
        width = getattr(after[-1], "outputs", width)
    longest, lowercase = _transformer(places[0], folder)
    prompts, default, features_kept, similarity = _of_texts(folder)
    if features_kept is not None and features_kept < width:
        after.append(Truncation(features_kept))
    return SentenceSettings(
        network=places[0], pool=pool, after=tuple(after), longest=longest, lowercase=lowercase,
        prompts=prompts, default_prompt=default, similarity=similarity,
    )  # fmt: skip


def module_folders(folder: Path) -> list[Path]:
    """Return the folders inside a sentence-transformers folder that hold its modules; else none.

    Raises `ModelFolderError` for a damaged list of modules.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return []
    entries = read_json(path, ModelFolderError, kind=list, largest=_MAX_FILE_BYTES)
    places = [str(entry.get("path")) for entry in entries if isinstance(entry, dict)]
    return [folder / place for place in places if _PLACE.fullmatch(place)]


def dense_folders(folder: Path) -> list[str]:
    """Return the names of the folders of the Dense layers of a sentence-transformers folder.

    Raises `ModelFolderError` for a damaged list of modules.
    """
    path = folder / MODULES_FILE
    entries = read_json(path, ModelFolderError, kind=list, largest=_MAX_FILE_BYTES)
    modules = [_module(entry, path) for entry in entries]
    return [place for kind, place in modules if kind == "Dense"]


def _module(entry: Any, path: Path) -> tuple[str, str]:  # noqa: ANN401
    """Return the kind of a module and its place in the folder."""
    config = entry if isinstance(entry, dict) else {}
    kind, place = str(config.get("type")), config.get("path")
    known = _KNOWN.fullmatch(kind)
    if known is None:
        raise _refused(
            f"a module is of the class {kind[:80]!r}",
            path,
            "sentence-transformers' Transformer, Pooling, Dense and Normalize are supported",
        )
    if place != "" and not (isinstance(place, str) and _PLACE.fullmatch(place)):
        raise _refused(f"a module's path is {str(place)[:80]!r}", path, "it must be a plain name")
    return known[2], place


def _check_names(entries: list[dict[str, Any]], path: Path) -> None:
    """Raise `ModelFolderError` if two modules have one name: the library keeps the last of them."""
    stated = Counter(str(entry["name"]) for entry in entries if "name" in entry)
    for name, times in stated.items():
        if times > 1:
            problem = f"two modules have the name {name[:80]!r}"
            raise _refused(problem, path, "give each one of its own")


def _pooling(path: Path, folder: Path) -> tuple[tuple[VectorPooling, ...], int]:
    """Return the kinds of pooling in their order, and how wide what they give is."""
    config = _settings(_inside(path, folder))
    mode = config.get("pooling_mode")
    names = [mode] if isinstance(mode, str) else mode
    if names is None:
        # without any flag the mean is what the library takes
        set_flags = [name for name, flag in FLAGS.items() if config.get(flag) is True]
        unset = config.get(FLAGS["mean"]) is None and not set_flags
        names = ["mean"] if unset else set_flags
    if not isinstance(names, list) or not names or not set(map(str, names)) <= POOLINGS.keys():
        raise _refused(f"pooling is {str(names)[:80]}", path, f"it can be {', '.join(POOLINGS)}")
    if config.get("include_prompt") is False:
        raise _refused(
            "include_prompt is false", path, "only prompts that are pooled too are supported"
        )
    width = config.get("word_embedding_dimension", config.get("embedding_dimension"))
    if type(width) is not int or not 1 <= width <= _MAX_SIDE_FILE_BYTES:
        raise _refused(f"word_embedding_dimension is {str(width)[:80]}", path, "it must be a width")
    return tuple(POOLINGS[name] for name in names), width * len(names)


def _dense(
    place: Path, folder: Path, width: int, unpickled: Callable[[Path], Path] | None
) -> Dense:
    path = _inside(place / "config.json", folder)
    config = _settings(path)
    _check_keys(config, path)
    if config.get("use_residual"):
        raise _refused("use_residual is set", path, "only plain maps are supported")
    kind = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = kind.rpartition(".")[2]
    if not kind.startswith("torch.nn.modules.") or activation not in ACTIVATIONS:
        raise _refused(
            f"activation_function is {kind[:80]!r}", path, f"it can be {', '.join(ACTIVATIONS)}"
        )
    weights = place / "model.safetensors"
    pickled = place / "pytorch_model.bin"
    if weights.is_file():
        file = TensorFile(_inside(weights, folder))
    elif not pickled.is_file():
        raise _refused(
            "has no model.safetensors",
            place,
            "fetch it, or use bertsmith convert where there is only a pytorch_model.bin",
        )
    elif unpickled is None:
        raise _refused(
            "holds pickled weights, which can run code when they are opened",
            pickled,
            f"convert the folder to safetensors with: bertsmith convert {shell_word(folder)} OUT",
        )
    else:
        weights = pickled
        file = TensorFile(unpickled(_inside(pickled, folder)))
    sizes = (config.get("out_features"), config.get("in_features"))
    shapes: dict[str, object] = {"linear.weight": sizes}
    if config.get("bias", True):
        shapes["linear.bias"] = sizes[:1]
    if {name: entry.shape for name, entry in file.entries.items()} != shapes or sizes[1] != width:
        raise _refused("its tensors do not fit its config and the pooling", weights, "")
    bias = file.read("linear.bias") if "linear.bias" in shapes else None
    return Dense(file.read("linear.weight"), bias, activation)


def _unit(place: Path, folder: Path) -> UnitLength:
    # newer versions write one, of which only what we do is followed
    path = place / "config.json"
    if path.is_file():
        _check_keys(_settings(_inside(path, folder)), path)
    return UnitLength()


def _check_keys(config: dict[str, Any], path: Path) -> None:
    for key in ("module_input_name", "module_output_name"):
        if config.get(key, "sentence_embedding") != "sentence_embedding":
            raise _refused(
                f"{key} is {str(config[key])[:80]!r}", path, "only the text's vector is supported"
            )


def _transformer(place: Path, folder: Path) -> tuple[int | None, bool]:
    """Return the longest text in tokens, and whether texts are lower-cased."""
    path = next((place / name for name in TRANSFORMER_FILES if (place / name).is_file()), None)
    config = {} if path is None else _settings(_inside(path, folder))
    path = path or place
    _check_transformer(config, path)
    longest, lowercase = config.get("max_seq_length"), config.get("do_lower_case", False)
    if longest is None:
        settings = place / "tokenizer_config.json"
        if settings.is_file():
            longest = _settings(_inside(settings, folder)).get("model_max_length")
        # tokenizers without a limit have a number of thirty digits
        longest = longest if type(longest) is int and longest < 2**31 else None
    if longest is not None and (type(longest) is not int or longest < 5):
        raise _refused(f"max_seq_length is {str(longest)[:80]!r}", path, "it must be at least 5")
    if not isinstance(lowercase, bool):
        raise _refused(
            f"do_lower_case is {str(lowercase)[:80]!r}", path, "it must be true or false"
        )
    return longest, lowercase


_OPTIONS = (
    "tokenizer_args", "processor_kwargs", "processing_kwargs", "config_args", "config_kwargs",
    "query_expansion",
)  # fmt: skip
_OUTPUT = {"method": "forward", "method_output_name": "last_hidden_state"}


def _check_transformer(config: dict[str, Any], path: Path) -> None:
    """Raise `ModelFolderError` for options of the Transformer that change vectors."""
    if config.get("transformer_task", "feature-extraction") != "feature-extraction":
        raise _refused("transformer_task is set", path, "only feature-extraction is supported")
    _check_options(config, path)
    kinds = config.get("modality_config")
    output = kinds.get("text", _OUTPUT) if isinstance(kinds, dict) else _OUTPUT
    name = config.get("module_output_name")
    if output != _OUTPUT or name not in (None, "token_embeddings"):
        raise _refused(
            "another output than last_hidden_state is pooled", path, "only that one is supported"
        )


def _check_options(config: dict[str, Any], path: Path) -> None:
    for key in _OPTIONS:
        value = config.get(key)
        # which the library ignores in files
        if value and not (isinstance(value, dict) and value.keys() <= {"trust_remote_code"}):
            raise _refused(f"{key} is {str(value)[:80]}", path, "it is not supported: remove it")


def _is_cross_encoder(folder: Path) -> bool:
    """Return whether a folder of one module, the Transformer, has a head that gives the answers.

    Such a folder is one of `transformers`, with the limit of its texts at the tokenizer. Raises
    `ModelFolderError` where the library would read other texts than those that it is given.
    """
    path = folder / TRANSFORMER_FILE
    config = _settings(_inside(path, folder)) if path.is_file() else {}
    if config.get("transformer_task") != "sequence-classification":
        return False
    _check_options(config, path)
    for key in ("do_lower_case", "max_seq_length"):
        if config.get(key):
            raise _refused(f"{key} is {str(config[key])[:80]}", path, "it is not supported")
    prompts, default, _, _ = _of_texts(folder)
    if default is not None and prompts[default]:
        raise _refused(
            f"default_prompt_name is {default[:80]!r}",
            folder / PROMPTS_FILE,
            "only prompts of vectors are supported",
        )
    return True


_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


def _of_texts(folder: Path) -> tuple[dict[str, str], str | None, int | None, str | None]:
    """Return the prompts by name, the default one's name, the features of a vector kept, and the
    similarity."""
    path = folder / PROMPTS_FILE
    config = _settings(_inside(path, folder)) if path.is_file() else {}
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    fits = isinstance(prompts, dict) and all(isinstance(prompt, str) for prompt in prompts.values())
    if not fits or (default is not None and str(default) not in prompts):
        raise _refused("its prompts cannot be understood", path, "each must be a text with a name")
    kept = config.get("truncate_dim")
    if kept is not None and (type(kept) is not int or kept < 1):
        raise _refused(f"truncate_dim is {str(kept)[:80]!r}", path, "it must be at least 1")
    # no vector depends on it, so that one that is not known is no reason to refuse them
    similarity = next((n for n in _SIMILARITIES if n == config.get("similarity_fn_name")), None)
    return prompts, default, kept, similarity


def _settings(path: Path) -> dict[str, Any]:
    config: dict[str, Any] = read_json(path, ModelFolderError, largest=_MAX_FILE_BYTES)
    return config


def _inside(path: Path, folder: Path) -> Path:
    """Return the path, once it is a file that is in the folder."""
    if not path.exists():
        raise _refused("is missing", path, f"{MODULES_FILE} asks for it")
    check_file(path, folder.resolve())
    return path


def _refused(problem: str, path: Path, remedy: str) -> ModelFolderError:
    return ModelFolderError(problem, where=path, remedy=remedy)


_CLASSES = "sentence_transformers.models"


def save_sentence_folder(
    folder: Path, model: Model, tokenizer: Tokenizer, settings: SentenceSettings, *, card: str = ""
) -> None:
    """Write a model folder that sentence-transformers loads, and that gives equal vectors there.

    All or nothing; the name must be free. `settings.network` is not looked at: the encoder is the
    model's. Raises `ModelFolderError`, `DiskError`.
    """
    if name_is_taken(folder):
        raise ModelFolderError("exists already", where=folder, remedy="choose another name")
    with new_folder(folder) as fresh:
        save_model(fresh, model, tokenizer, card=card)
        write_sentence_files(fresh, settings, model.config.encoder)


def save_like(
    parent: Path, folder: Path, model: Model, tokenizer: Tokenizer, *, card: str = ""
) -> None:
    """Write a model made of another, as a sentence-transformers folder if `parent` is one.

    Settings of that folder that we do not follow are reported and left out.
    """
    try:
        settings = read_sentence_folder(parent)
    except ModelFolderError as error:
        say(f"{error.where}: {error.problem}; pooling is left out")
        settings = None
    if settings is None:
        save_model(folder, model, tokenizer, card=card, longest=tokenizer.longest)
    else:
        save_sentence_folder(folder, model, tokenizer, settings, card=card)


def write_sentence_files(folder: Path, settings: SentenceSettings, encoder: EncoderConfig) -> None:
    """Write the files that make the folder of an encoder one of the library's."""
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    layers, kept = _without_truncation(settings.after)
    for number, layer in enumerate(layers, start=2):
        kind = "Dense" if isinstance(layer, Dense) else "Normalize"
        modules.append((kind, f"{number}_{kind}"))
    for _, place in modules[1:]:
        (folder / place).mkdir()
    write_json(folder / modules[1][1] / "config.json", _pooling_settings(settings, encoder.hidden))
    for (_, place), layer in zip(modules[2:], layers, strict=True):
        if isinstance(layer, Dense):
            _write_dense(folder / place, layer)
    # the library states the rows of a RoBERTa's table, two of which are no positions
    longest = None if settings.longest is None else min(settings.longest, encoder.longest)
    write_json(
        folder / TRANSFORMER_FILE,
        {"max_seq_length": longest, "do_lower_case": settings.lowercase},
    )
    of_texts = {"prompts": settings.prompts, "default_prompt_name": settings.default_prompt, **kept}
    if settings.similarity is not None:
        of_texts["similarity_fn_name"] = settings.similarity
    write_json(folder / PROMPTS_FILE, of_texts)
    write_json(
        folder / MODULES_FILE,
        [
            {"idx": number, "name": str(number), "path": place, "type": f"{_CLASSES}.{kind}"}
            for number, (kind, place) in enumerate(modules)
        ],
    )


def _without_truncation(
    after: tuple[AfterPooling, ...],
) -> tuple[tuple[AfterPooling, ...], dict[str, int]]:
    """Return the layers that are modules of the library, and the truncation after them."""
    if after and isinstance(last := after[-1], Truncation):
        return after[:-1], {"truncate_dim": last.outputs}
    return after, {}


def _pooling_settings(settings: SentenceSettings, hidden: int) -> dict[str, Any]:
    names = {kind: name for name, kind in POOLINGS.items()}
    config: dict[str, Any] = {"word_embedding_dimension": hidden, "include_prompt": True}
    if settings.pool == tuple(kind for kind in names if kind in settings.pool):
        return config | {flag: POOLINGS[name] in settings.pool for name, flag in FLAGS.items()}
    # flags say no order; versions before 5.4 know nothing else
    return config | {"pooling_mode": [names[kind] for kind in settings.pool]}


def _write_dense(place: Path, layer: Dense) -> None:
    tensors = {"linear.weight": layer.weight}
    if layer.bias is not None:
        tensors["linear.bias"] = layer.bias
    write_tensors(place / "model.safetensors", tensors, {"format": "pt"})
    config = {
        "in_features": layer.inputs,
        "out_features": layer.outputs,
        "bias": layer.bias is not None,
        "activation_function": f"torch.nn.modules.activation.{layer.activation}",
    }
    if layer.activation == "Identity":
        config["activation_function"] = "torch.nn.modules.linear.Identity"
    write_json(place / "config.json", config)


_STATIC_CLASS = "sentence_transformers.models.StaticEmbedding"
_STATIC = re.compile(r"sentence_transformers(\.\w+)*\.StaticEmbedding")
_WEIGHT = "embedding.weight"
# the second is Model2Vec's name, as its place of the module is "."
_WEIGHTS = (_WEIGHT, "embeddings")


def is_static(folder: Path) -> bool:
    """Return whether a folder is that of a static model; raises `ModelFolderError`."""
    path = folder / MODULES_FILE
    if not path.is_file():
        return False
    modules = read_json(path, ModelFolderError, kind=list, largest=_MAX_FILE_BYTES)
    first = modules[0] if modules and isinstance(modules[0], dict) else {}
    return _STATIC.fullmatch(str(first.get("type"))) is not None


def read_static(folder: Path) -> tuple[Tensor, Tokenizer, SentenceSettings]:
    """Return the vectors of a static model, (pieces, width), its tokenizer, and its other settings.

    Raises `ModelFolderError` for a folder that is damaged or has modules that we do not follow.
    """
    place, after = _static_modules(folder)
    path = place / WEIGHTS_FILE
    if not path.is_file():
        raise ModelFolderError(f"has no {WEIGHTS_FILE}", where=place)
    check_file(path, folder.resolve())
    file, tokenizer = TensorFile(path), Tokenizer.load(place)
    # Model2Vec multiplies by the first, and finds the row of a piece by the second
    for other in ("weights", "mapping"):
        if other in file.entries:
            raise _refused(
                f"has a tensor {other}, of Model2Vec's vocabulary_quantization",
                path,
                "distil the model again without it",
            )
    name = next((name for name in _WEIGHTS if name in file.entries), "")
    shape = file.entries[name].shape if name else ()
    if len(shape) != 2 or shape[0] != tokenizer.size or not shape[1]:
        raise ModelFolderError(
            f"its vectors do not fit a vocabulary of {tokenizer.size} pieces", where=path
        )
    prompts, default, kept, similarity = _of_texts(folder)
    if kept is not None and kept < shape[1]:
        after.append(Truncation(kept))
    settings = SentenceSettings(
        network=place, after=tuple(after), longest=_static_limit(place, folder), prompts=prompts,
        default_prompt=default, similarity=similarity,
    )  # fmt: skip
    return file.read(name).float(), tokenizer, settings


def _static_modules(folder: Path) -> tuple[Path, list[AfterPooling]]:
    """Return the folder of the StaticEmbedding, and the layers after it."""
    path = folder / MODULES_FILE
    first, *rest = read_json(path, ModelFolderError, kind=list, largest=_MAX_FILE_BYTES)
    place = first.get("path")
    plain = isinstance(place, str) and (place in ("", ".") or _PLACE.fullmatch(place))
    if not plain:
        raise _refused(f"a module's path is {str(place)[:80]!r}", path, "it must be a plain name")
    kinds = [_module(item, path) for item in rest]
    _check_names([first, *rest], path)
    if not {kind for kind, _ in kinds} <= {"Normalize"}:
        names = ", ".join(kind for kind, _ in kinds)
        raise _refused(
            f"its modules are StaticEmbedding, {names}",
            path,
            "after a StaticEmbedding only Normalize is supported",
        )
    return folder / place, [_unit(folder / item, folder) for _, item in kinds]


def _static_limit(place: Path, folder: Path) -> int | None:
    """Return the longest text in tokens, by the truncation of the tokenizer's file."""
    path = place / "tokenizer.json"
    if not path.is_file():
        return None
    check_file(path, folder.resolve())
    config = files.read_json(path).get("truncation")
    longest = config.get("max_length") if isinstance(config, dict) else None
    if longest is not None and (type(longest) is not int or longest < 1):
        raise _refused(f"max_length is {str(longest)[:80]!r}", path, "it must be at least 1")
    if files.cuts_beginning(config):
        raise _refused("truncates texts at their beginning", path, "only their end can be cut off")
    return longest


def save_static(folder: Path, vectors: Tensor, tokenizer: Tokenizer, *, card: str = "") -> None:
    """Write a static model, all or nothing; the folder must be new or empty."""
    assert vectors.shape[0] == tokenizer.size
    with new_folder(folder) as fresh:
        tokenizer.save(fresh, longest=512)
        write_json(
            fresh / MODULES_FILE, [{"idx": 0, "name": "0", "path": "", "type": _STATIC_CLASS}]
        )
        write_tensors(fresh / WEIGHTS_FILE, {_WEIGHT: vectors.to(torch.float32)}, {"format": "pt"})
        if card:
            (fresh / CARD_FILE).write_text(card, encoding="utf-8")
