"""Exact enumeration: every possible run of a decoder, each with its probability."""
