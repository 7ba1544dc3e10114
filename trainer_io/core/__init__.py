"""Pure parts of training input: which sample comes when, for whom. No IO, clock or threads."""
