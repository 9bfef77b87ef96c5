"""The invented corpus."""

from invented import folder, some_documents, store, tokenizer

__all__ = ["folder", "some_documents", "store", "tokenizer"]
