"""The stage: a small GPT, its data, its training, plain decoding, timing and pictures.

Nothing in here is about speculation; the chapters are. Chapters import from here, never the
other way round.
"""
