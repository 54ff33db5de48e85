"""Packed weights, dispatch and explain, the torch operator, ``MarlinLinear``."""
