"""Measures products on a GPU: cold L2, CUDA graphs, contenders interleaved in one run, every timed result checked first."""
