"""The parts of benchmarks/serving.py: servers under load, each in processes of its own.

`questions` builds models and what they are asked, `engine` answers that in bulk, `servers` starts
servers and reads their processor time and memory, `client` asks them from one process with as many
connections as wanted, `comparing` judges the answers. `bench` is what the scenarios share, which
are in `scenarios`, and in `rivals` beside other servers; `rival_server` is what people write who
have no server: FastAPI before sentence-transformers.
"""
