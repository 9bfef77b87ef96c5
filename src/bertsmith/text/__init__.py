"""Read files as documents and labelled examples.

`encodings` and `opening` yield the lines of a file, whatever its encoding and compression; `tables`
and `headers` the rows of CSV, TSV, JSONL and Parquet, `parquet_columns` the values of the latter's
columns, `structured` values in JSON files and cells. `white_space` makes it single spaces.
`bad_rows` keeps rows apart that cannot be read. Two packages build on them: `corpus`, for text to
pre-train on, and `examples`, for labelled text. `treebank` and `coreference` read annotations that
models are compared with, and none is trained on.
"""
