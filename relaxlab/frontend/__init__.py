"""Importers: programs of other frameworks as modules with the arrays that belong to them.

Each source has a folder with its table of rows, one for each primitive, and a function that walks
its graph. All stand on the same parts:

- `Table` (`table.py`): `row("aten.relu.default", lambda b, x: b.relu(x))`. `table.find(name)` is a
  row or None. Before anything is built, a source lists the primitives that have none as
  `Problem(name, reason, span)` and raises `UnsupportedOperators(source, problems)`, which reports
  all of them with counts and places. A row raises `Refused(reason)` for operands or attributes
  that it cannot express.
- `Emitter` (`emitter.py`), the first argument of every row: each operator is a method that binds a
  call and returns its variable, `b.add(x, y)`; `b.te(fn, *tensors)` binds tensor expressions,
  `b.cond` and `b.while_loop` control flow. `b.input(name, ty)` and then `b.weight(path, array)`
  declare parameters; `b.apply(name, row, args, attrs, out=types, span=place)` runs a row, compares
  the types of its results with those that the source states (`b.out` while it runs), and notes
  refusals; `b.finish(result)` is the module, or raises with all refusals.
- `Symbols` (`symbols.py`): dimensions by the source's names, `symbols("batch")`, expressions of
  them by arithmetic, constraints by `constrain(name, lower, upper)` and `require(condition)`. Upper
  bounds become the function's attribute `tir_var_upper_bound`, the others are checked by calls.
- `span_at(file, line)` (`places.py`): a place in the user's source.
- `ImportedProgram(module, params, flatten, unflatten)` (`program.py`): the result. `compile()` is
  called as the source is. Arrays of `params` are the source's memory.

What the source states about types of results (PyTorch's metadata, abstract values of JAX) already
follows its rules of promotion: rows convert operands to `b.out[0].dtype` where these differ.

No module of this package imports a framework before one of its programs is imported.
"""
