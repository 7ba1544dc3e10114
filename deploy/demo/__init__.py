"""The demo: one command takes real files through storage, a data job, training and a failure.

Each stage is a module with one function and a typed result, and verifies what it claims; `runner`
puts them in order, times them and cleans up; `report` says what happened.
"""
