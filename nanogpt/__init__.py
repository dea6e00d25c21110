"""The stage: the model, its data and training, plain decoding, and what measures decoders.

    model.py       GPT and its KV cache           sampling.py   Sampler, Dice: all chance
    decoding.py    plain decoding, and what every decoding loop shares
    packing.py     a faster copy for decoding     device.py     cpu, cuda or mps
    data.py        corpora and tokenizers         bpe.py        makes the small vocabulary
    sizes.py       named models, their recipes    train.py      the training loop
    checkpoint.py  files of weights               huggingface.py  export to transformers
    clock.py       milliseconds, c(N)             contest.py    compare decoders fairly
    account.py     tables: who is faster, why     printing.py, cli.py   the terminal
    exact/         enumeration: the proof that a rule loses nothing
    pictures/      everything that draws, records or animates; nothing above imports it

Chapters import from here, never the other way round.
"""
