"""Input that cannot be used: status 2, one line with file, line and remedy, nothing left behind."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from pathlib import Path

import pytest

from faults.shell import Shell
from verbs import learn_vocabulary

LATIN = "gabo\nké\n".encode("latin-1")
CORPUS_VERBS = (
    "vocab learn {file} --out made",
    "prepare {file} --vocab {{vocab}} --out made/store --workers 1",
)
EXAMPLES = "label\ttext\n" + "".join(f"{'ab'[n % 2]}\tgabo {n}\n" for n in range(20))
TABLES = {
    "a.csv": b"id,words\n1,gabo\n",
    "a.tsv": b"id\twords\n1\tgabo\n",
    "a.jsonl": b'{"id": 1, "words": "gabo"}\n',
}


def write(name: str, content: bytes | str) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


@pytest.mark.parametrize("verb", CORPUS_VERBS)
@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", b""), ("a.txt", b" \r\n\n"), ("a.jsonl", b""), ("a.csv", b"text\n")],
)
def test_an_empty_corpus(shell: Shell, verb: str, name: str, content: bytes) -> None:
    line = shell.refused(verb.format(file=write(name, content)))
    assert f"bertsmith: {name}: holds no text; give" in line


@pytest.mark.parametrize("verb", CORPUS_VERBS)
def test_a_folder_without_text_and_a_path_that_is_none(shell: Shell, verb: str) -> None:
    write("folder/picture.png", b"\x89PNG")
    assert "bertsmith: folder: no file with text in it" in shell.refused(verb.format(file="folder"))
    assert "bertsmith: nowhere.txt: does not exist" in shell.refused(
        verb.format(file="nowhere.txt")
    )


def test_a_corpus_without_a_word(shell: Shell) -> None:
    write("a.txt", "\u200b\u200b\n")
    shell.refused("vocab learn a.txt --out made")
    shell.refused("prepare a.txt --vocab {vocab} --out made --workers 1")


@pytest.mark.parametrize("verb", CORPUS_VERBS)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_corpus_that_is_not_utf8(shell: Shell, verb: str, name: str) -> None:
    content = b"gabo.\n" * 70_000 + LATIN
    write("0.txt", "gabo dela.\n")  # a good file comes first
    write(name, gzip.compress(content) if name.endswith(".gz") else content)
    line = shell.refused(verb.format(file=f"0.txt {name}"))
    assert f"bertsmith: {name}:70002: is not UTF-8" in line
    assert "name its encoding, such as --encoding" in line


@pytest.mark.parametrize("verb", CORPUS_VERBS)
@pytest.mark.parametrize("name", TABLES)
def test_a_corpus_without_the_column(shell: Shell, verb: str, name: str) -> None:
    line = shell.refused(verb.format(file=write(name, TABLES[name])))
    option = "name one of its columns with --text-column"
    assert f"bertsmith: {name}:1: no column 'text'; {option}: 'id', 'words'" in line


def test_examples_of_no_use_for_finetuning(shell: Shell) -> None:
    command = "finetune {model} a.tsv --out made/run --seeds 1"
    for content, told in (
        (b"", "a.tsv: holds no examples"),
        (b"label\ttext\n", "a.tsv: holds no examples"),
        (b"label\ttext\na\t" + LATIN, "a.tsv:3: is not UTF-8"),
        (
            b"id\twords\n1\tgabo\n",
            "a.tsv:1: no column that looks like the text; name it with --",
        ),
        (
            b"id\ttext\n1\tgabo\n",
            "a.tsv:1: no column that looks like the label; name it with --l",
        ),
        (b"label\ttext\na\tgabo\na\tdela\n", "a.tsv: has one class only, 'a'"),
        (b"label\ttext\na\tgabo\n\tdela\n", "a.tsv:3: no label"),
        (b"label\ttext\na\t\n", "a.tsv:2: the text is empty"),
        (b"label\ttext\na\tgabo\tmore\n", "a.tsv:2: 3 columns where the first row has 2"),
    ):
        write("a.tsv", content)
        assert f"bertsmith: {told}" in shell.refused(command)


def test_a_column_that_was_named_but_is_not_there(shell: Shell) -> None:
    write("a.tsv", "label\ttext\na\tgabo\nb\tdela\n")
    for option in ("--text-column", "--text-pair-column", "--label-column"):
        line = shell.refused(f"finetune {{model}} a.tsv --out made {option} body")
        assert "a.tsv:1: no column 'body'; name one of its columns: 'label', 'text'" in line
    line = shell.refused("predict {classifier} a.tsv --text-column body")
    assert "a.tsv:1: no column 'body'" in line


def test_an_unknown_label_in_dev(shell: Shell) -> None:
    write("a.tsv", EXAMPLES)
    write("dev.tsv", "label\ttext\na\tgabo\nc\tdela\n")
    line = shell.refused("finetune {model} a.tsv --out made --dev dev.tsv")
    assert "bertsmith: dev.tsv:3: unknown label 'c'; the training examples have a, b" in line
    write("dev.tsv", b"label\ttext\na\t" + LATIN)
    line = shell.refused("finetune {model} a.tsv --out made --dev dev.tsv")
    assert "bertsmith: dev.tsv:3: is not UTF-8" in line


@pytest.mark.parametrize("model", ["{model}", "{classifier}"])
def test_texts_that_cannot_be_answered(shell: Shell, model: str) -> None:
    for content, told in (
        (b"", "a.txt: holds no text"),
        (b"[MASK] gabo\n" * 2 + LATIN, "a.txt:4: is not UTF-8"),
    ):
        write("a.txt", content)
        assert f"bertsmith: {told}" in shell.refused(f"predict {model} a.txt")
    write("a.csv", TABLES["a.csv"])
    assert "a.csv:1: no column that looks like the text" in shell.refused(f"predict {model} a.csv")


@pytest.mark.parametrize(
    "command",
    ["predict {place} a.txt", "finetune {place} a.tsv --out made", "prepare a.txt --vocab {place}"],
)
def test_a_folder_that_is_no_model(shell: Shell, shared: dict[str, str], command: str) -> None:
    write("a.txt", "gabo [MASK]\n")
    write("a.tsv", "label\ttext\na\tgabo\nb\tdela\n")
    write("file", "text")
    Path("empty").mkdir()
    command += " --out made" if command.startswith("prepare") else ""
    for place in ("nowhere", "empty", "file", shared["store"]):
        line = shell.refused(command.replace("{place}", place))
        assert line.startswith(f"bertsmith: {place}")


@pytest.mark.parametrize("damage", ["config.json", "model.safetensors"])
def test_a_model_of_which_a_file_is_missing_or_cut(
    shell: Shell, shared: dict[str, str], damage: str
) -> None:
    write("a.txt", "gabo [MASK]\n")
    for share in (0.5, 0.02, 0):
        shutil.copytree(shared["model"], "copy")
        path = Path("copy", damage)
        content = path.read_bytes()
        if share:
            path.write_bytes(content[: int(share * len(content))])
        else:
            path.unlink()
        assert "bertsmith: copy" in shell.refused("predict copy a.txt")
        shutil.rmtree("copy")


class Armed:
    """What runs a command of its maker's when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("armed", "w")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl"])
def test_a_pickled_model_is_never_opened(shell: Shell, shared: dict[str, str], name: str) -> None:
    write("a.txt", "gabo [MASK]\n")
    write("a.tsv", "label\ttext\na\tgabo\nb\tdela\n")
    shutil.copytree(shared["model"], "pickled")
    Path("pickled/model.safetensors").unlink()
    Path("pickled", name).write_bytes(pickle.dumps(Armed()))
    for place in ("pickled", f"pickled/{name}"):
        for command in (f"predict {place} a.txt", f"finetune {place} a.tsv --out made"):
            line = shell.refused(command)
            assert line.startswith(f"bertsmith: pickled/{name}: holds pickled weights")
            assert line.endswith("; make safetensors of them with: bertsmith convert")


def test_a_store_made_with_another_vocabulary(shell: Shell, shared: dict[str, str]) -> None:
    write("a.txt", "gabo dela kuri moti.\n" * 9)
    learn_vocabulary(["a.txt"], out=Path("other"), size=100)
    shutil.copytree(shared["store"], "store")
    shutil.copytree("other", "store/vocabulary", dirs_exist_ok=True)
    line = shell.refused("pretrain store --out made/run --model tiny --steps 1")
    assert "/store/vocabulary/tokenizer.json: " in line
    assert line.endswith("; run `bertsmith prepare` again")


@pytest.mark.parametrize("begin", ["s", "run"])
def test_a_store_that_cannot_be_looked_at_is_not_taken_for_the_run(
    shell: Shell, begin: str
) -> None:
    """As one in a folder that its owner alone may enter, also where its name holds the run's."""
    name = begin + "s" * 300
    line = shell.refused(f"pretrain {name} --out run --model tiny --steps 1")
    assert line.startswith(f"bertsmith: {name}/store.json: File name too long; choose a shorter")


def test_what_is_no_store_or_a_damaged_one(shell: Shell, shared: dict[str, str]) -> None:
    command = "pretrain {place} --out made/run --model tiny --steps 1"
    for place in ("nowhere", shared["model"], shared["vocab"]):
        assert "holds no store.json" in shell.refused(command.replace("{place}", place))
    for name, content in (
        ("store.json", b"{"),
        ("store.json", b"{}"),
        ("tokens-00000.bin", b""),
        ("sentences.bin", b""),
        ("vocabulary/vocab.txt", b""),
    ):
        shutil.copytree(shared["store"], "store")
        Path("store", name).write_bytes(content)
        assert "store" in shell.refused(command.replace("{place}", "store"))
        shutil.rmtree("store")


def test_an_output_that_is_there_already_is_never_touched(shell: Shell) -> None:
    write("a.txt", "gabo dela kuri.\n\nmoti.\n")
    write("a.tsv", EXAMPLES)
    write("made/thesis.txt", "mine")
    for command in (
        "vocab learn a.txt --out made",
        "prepare a.txt --vocab {vocab} --out made --workers 1",
        "pretrain {store} --out made --model tiny --steps 1",
        "finetune {model} a.tsv --out made",
    ):
        assert shell.refused(command).startswith("bertsmith: made: ")
        # a file stands where a folder would have to be
        line = shell.refused(command.replace("--out made", "--out made/thesis.txt/below/it"))
        assert line.startswith("bertsmith: made/thesis.txt/below")
        assert "Not a directory; a part of the path is a file: name a folder in its place" in line


def test_settings_that_do_not_fit_leave_no_run(shell: Shell) -> None:
    write("bad.toml", "max-gradient-norm = 1\nmax-gradient-nor = 2\n")
    write("not.toml", "clip = \n")
    for options, told in (
        ("--steps 1 --minutes 1", "either steps or minutes"),
        ("--steps 0", "steps is 0"),
        ("--steps 1 --max-length 700", "--max-length (700) exceeds --max-positions (512)"),
        (
            "--steps 1 --config bad.toml",
            "bad.toml:2: there is no option max-gradient-nor; did you mean max-gradient-norm?",
        ),
        ("--steps 1 --config not.toml", "not.toml:1: not TOML: Invalid value; write YAML"),
        ("--steps 1 --config nowhere.toml", "nowhere.toml: cannot be read"),
    ):
        assert told in shell.refused(f"pretrain {{store}} --out made --model tiny {options}")
    for options in ("--model tiny", "--steps 3", "--seed 1"):
        assert "keeps its settings" in shell.refused(f"pretrain --out made {options}")
    assert "made: holds no run to resume; name a store" in shell.refused("pretrain --out made")
    for options in ("--held-out 1", "--workers 0"):
        line = shell.refused(f"prepare bad.toml --vocab {{vocab}} --out made {options}")
        assert "it must be" in line


def test_a_run_of_other_settings_or_another_kind(shell: Shell, shared: dict[str, str]) -> None:
    write("a.tsv", EXAMPLES)
    other = Path(shared["store"]).parent / "other-store"
    if not other.exists():
        write("a.txt", "gabo dela.\n\nkuri moti.\n\nmoti zu.\n")
        assert shell.run(f"prepare a.txt --vocab {{vocab}} --out {other} --workers 1")[0] == 0
    command = "pretrain {store} --out run --model tiny --steps 1 --tokens-per-batch 240"
    assert shell.run(command)[0] == 0
    for changed, told in (
        (command.replace("--steps 1", "--steps 2"), "(budget.steps was 1, now 2); choose another"),
        (command.replace("{store}", str(other)), "(store was "),
        ("finetune {model} a.tsv --out run", "belongs to a run of `bertsmith pretrain`"),
    ):
        assert told in shell.refused(changed)
    run = json.loads(Path("run/run.json").read_text())
    run["settings"]["store_hash"] = "0" * 64
    Path("run/run.json").write_text(json.dumps(run))
    assert "store_hash: the contents have changed" in shell.refused(command)
    assert "begun with another store" in shell.refused("pretrain --out run")
    Path("run/run.json").write_text("{")
    line = shell.refused("pretrain --out run")
    assert "run/run.json: is damaged: not JSON" in line
    assert line.endswith("; choose another --out")
