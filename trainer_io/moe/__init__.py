"""Mixture-of-experts building blocks: one folder per concept, each kernel beside its reference."""
