"""The two sides of pretrain_throughput.py, each in a process of its own."""
