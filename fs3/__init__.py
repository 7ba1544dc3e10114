"""fs3: a distributed file system for training and inference data.

    import fs3
    fs = fs3.connect()          # joins the configured cluster, or starts a local one

Everything else is reached from the object that `connect` returns.
"""
