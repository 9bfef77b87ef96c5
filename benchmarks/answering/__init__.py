"""The contestants of benchmarks/inference.py, and the texts that they are given.

`texts` invents or finds texts, `contestants` opens each rival as its own users would do best,
`worker` is the process in which one of them runs.
"""
