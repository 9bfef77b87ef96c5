"""The records of a training: the run's folder and its checkpoints, and the writing of both.

`folder` has one owner at a time; `checkpoints` are whole or not there, and read back past a damaged
one, of one rank or of several; `saving` writes while training goes on.
"""
