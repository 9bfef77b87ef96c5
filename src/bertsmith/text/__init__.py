"""Files become documents and labelled examples.

`encodings` and `opening` give the lines of a file, whatever its encoding and compression; `tables`
and `headers` the rows of CSV, TSV, JSONL and Parquet. Above them stand two roads: `corpus`, for
text to learn from, and `examples`, for text with labels.
"""
