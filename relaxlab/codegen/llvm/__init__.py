"""The LLVM target: one generic emitter from loop functions to LLVM IR."""
