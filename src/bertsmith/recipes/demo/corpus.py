"""The demo's corpus: the documentation of this machine's Python."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from bertsmith.core.log import progress, say, short_number
from bertsmith.core.printable import counted
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documentation import (
    ModuleFile,
    ModuleText,
    documentation_files,
    module_texts,
)
from bertsmith.text.corpus.documents import Document


def read_documentation() -> list[ModuleText]:
    """Return the documentation of every module, read by one process per core."""
    files = documentation_files()
    modules: list[ModuleText] = []
    spawn = multiprocessing.get_context("spawn")
    with (
        progress("reading documentation", len(files), "modules") as bar,
        ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=spawn) as pool,
    ):
        for texts in pool.map(_texts, files, chunksize=32):
            modules += texts
            bar.advance()
    return modules


def as_documents(modules: list[ModuleText]) -> list[Document]:
    """Return one document per module."""
    return [
        Document(source=module.module, line=1, paragraphs=module.paragraphs) for module in modules
    ]


def tell_corpus(modules: list[ModuleText], store: TokenStore) -> None:
    """Print one line about the corpus."""
    held_out = store.held_out()
    parts = [store.index] + ([held_out.index] if held_out else [])
    packages = len({module.package for module in modules})
    say(
        f"1. corpus: the documentation of {packages} packages, "
        f"{counted(sum(part.documents for part in parts), 'document')}, "
        f"{counted(sum(part.sentences for part in parts), 'sentence')}, "
        f"{short_number(sum(part.text.words for part in parts))} words; "
        f"{store.index.duplicates:,} duplicates left out, "
        f"{counted(held_out.index.documents if held_out else 0, 'document')} held out"
    )


def _texts(file: ModuleFile) -> list[ModuleText]:
    return list(module_texts(file))
