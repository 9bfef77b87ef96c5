"""Byte-pair encoding: text as bytes, joined in the order in which pairs were learned.

`pairs` has RoBERTa's words and the joins, `text` the ids of RoBERTa, `modern` those of ModernBERT.
"""
