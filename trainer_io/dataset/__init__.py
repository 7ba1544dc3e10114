"""Data sets over files: random access in batches, and a shuffled, resumable stream on top.

`source` lists and reads files (local or fs3); `files`, `rows` and `tokens` are map-style data sets
that read a whole mini-batch in one call; `streaming` orders, shards and reads ahead; `loader` is
the PyTorch DataLoader that knows how far training has come.
"""
