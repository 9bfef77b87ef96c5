"""Documents become a token store: a corpus as ids on disk, read by memory map.

In `preparing` sections of a corpus are encoded by several processes, texts that came
before are left out (`duplicates`), and `writing` writes shards in a fixed order.
`unfinished` resumes an interrupted preparation. `store` reads and verifies; `survey` tells
whether a store is worth training on.
"""
