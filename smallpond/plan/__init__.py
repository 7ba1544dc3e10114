"""What is to be computed (`relation`) and how it is cut into tasks (`stage`, `planner`)."""
