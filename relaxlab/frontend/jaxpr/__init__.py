"""Programs from JAX, by their jaxprs.

`importer.py` traces a function with `jax.make_jaxpr` and symbolic dimensions and walks the jaxpr;
the other modules have a row for each primitive in the one table of `rows.py`.
"""
