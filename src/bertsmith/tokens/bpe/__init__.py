"""Byte-pair encoding: bytes merged in the order in which the merges were learned.

`pairs` has RoBERTa's words and the merges, `text` the ids of RoBERTa, `modern` those of ModernBERT.
"""
