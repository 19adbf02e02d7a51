"""Steps of lowering loop functions, one by one, for those who take a program apart to look at them,
or put passes of their own in between. `codegen.lower_blocks` and what follows it make their like.
"""
