"""Running plans: the driver's loop around the scheduler core, and the worker process."""
