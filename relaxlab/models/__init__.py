"""Model files, tokenizers and model families built on the compiler."""
