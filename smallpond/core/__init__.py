"""The scheduler as a pure state machine: no clock, IO, threads, randomness or pickles in here."""
