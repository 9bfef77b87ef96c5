"""The base of every other folder: nothing here knows of text, tokens or networks.

`config` is the base of all settings, `errors` every error a user can meet, `log` result lines and
progress. `files` reads what strangers wrote, JSON too, hashes it, and writes so that nothing
half-written stays. `ownership` keeps two processes from one output, `signals` end a program in good
order, and a `pool` of processes with it; `processors` counts those that may be used. `streams`
gives every purpose random numbers of its own; `shapes` is the legend of all axes, `lazy` makes
tables that import or compute an entry on first access, `normal_forms` those of Unicode. Nothing
here imports torch.
"""

VERSION = "0.1.0"
