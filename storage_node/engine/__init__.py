"""The boundary to the native storage server: `port.py` names it, `fake.py` is it in memory."""
