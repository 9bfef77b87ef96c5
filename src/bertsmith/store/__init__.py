"""Documents become a token store: a corpus as ids on disk, read by memory map.

`preparing` is the road: sections of a corpus are encoded by several processes, texts that came
before are left out (`duplicates`), and `writing` writes shards in a fixed order.
`temporary_path` lets an interrupted preparation go on. `store` reads and verifies; `survey` tells
whether a store is worth training on.
"""
