"""Attention within the sequences of a packed batch.

A batch has its sequences end to end, and a token may only see tokens of its own sequence. `layout`
knows where each sequence lies and chooses how attention is computed:

- on a GPU a kernel takes the offsets of the sequences as they are;
- on a processor (`cpu`) sequences of like lengths share a group, a dense block that one product
  serves; the groups are chosen so that little of a block is unused;
- where a layer sees neighbours only, long sequences are cut into blocks that see themselves and
  the blocks beside them, and these are grouped in the same way.

`rotary` turns queries and keys by their positions before they meet. `reference` is attention in a
few plain lines, for layers whose weights are tapped and for tests.
"""
