"""What a task can do with rows: one operator, one file.

* Sources (`scan_*`, `literal`, `query`) make rows out of nothing but a description.
* Steps (`sql`, `map_rows`, `filter_rows`, ...) turn the rows of a partition into others.
* Exchanges (`by_*`) say which rows of which tasks a new partition holds.
* Sinks (`store`, `shuffle`, `write_files`) end a task and return what is known about its output.

Steps and sinks run in workers; all of them are values that can be pickled.
"""
