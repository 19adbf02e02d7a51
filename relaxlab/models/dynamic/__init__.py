"""Networks whose control flow depends on the input, as programs to be run in batches."""
