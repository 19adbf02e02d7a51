"""Questions about types and functions."""

from tvm import relax, tirx
from tvm.relax import analysis
from tvm.script import ir as I
from tvm.script import relax as R

n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
tensor = relax.TensorType((n, m + 1), "float32")


def said(ty):
    if isinstance(ty, relax.TupleType):
        return [said(field) for field in ty.fields]
    dims = None if ty.shape is None else [analysis_text(d) for d in ty.shape]
    return dims, ty.ndim, str(ty.dtype)


def analysis_text(dim):
    return str(dim).replace("T.int64(", "").replace(")", "")


for known in ({}, {n: n}, {n: n, m: m}, {n: m, m: n}):
    print(said(analysis.erase_to_well_defined(tensor, known)))
print(said(analysis.get_static_type(relax.TupleType([tensor, relax.TensorType((4,), "int8")]))))
pair = relax.TupleType([tensor, relax.TensorType((4, n, n - m), "float32")])
print(list(map(analysis_text, analysis.collect_non_negative_expressions(pair))))


@I.ir_module
class Layer:
    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")
    ):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            t = R.permute_dims(w)
            y = R.matmul(x, t)
            c = R.add(b, b)
            d = R.add(t, c)
            e = R.matmul(y, d)
            z = R.add(e, c)
            R.output(z)
        return z


print([var.name for var in analysis.computable_at_compile_time(Layer["main"])])

square = relax.FuncType([relax.TensorType((n, n), "float32")], relax.TensorType((n,), "float32"))
x = relax.Var("x", relax.TensorType((7, 7), "float32"))
call = relax.Call(relax.ExternFunc("f"), [x])
print(said(analysis.derive_call_ret_type(square, call, relax.BlockBuilder())))
