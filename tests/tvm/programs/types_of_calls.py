"""Types that calls of operators have; a line for each."""

import tvm
from tvm import relax
from tvm.script import relax as R

m, n, k = (tvm.te.var(name, "int64") for name in "mnk")


def tensor(*shape, dtype="float32"):
    return relax.Var("x", R.Tensor(shape, dtype))


op = relax.op
x, y, vector, image = tensor(2, 3), tensor(3, 4), tensor(3), tensor(2, 3, 28, 28)
kernel, indices, symbolic = tensor(4, 3, 3, 3), tensor(5, dtype="int64"), tensor(m, n)
unknown = relax.Var("x", R.Tensor(dtype="float32", ndim=2))
CALLS = [
    lambda: op.add(x, tensor(1, 3)),
    lambda: op.add(x, tensor(4, 3)),
    lambda: op.add(symbolic, tensor(1, n)),
    lambda: op.add(unknown, x),
    lambda: op.add(x, tensor(2, 3, dtype="float16")),
    lambda: op.greater(x, x),
    lambda: op.matmul(symbolic, tensor(n, 4)),
    lambda: op.matmul(x, x),
    lambda: op.matmul(x, y, out_dtype="float16"),
    lambda: op.sum(x, axis=[0, 1], keepdims=True),
    lambda: op.sum(x, axis=3),
    lambda: op.mean(unknown, axis=-1),
    lambda: op.argmax(x, axis=1),
    lambda: op.permute_dims(x, [1, 1]),
    lambda: op.reshape(x, (-1, 2)),
    lambda: op.reshape(x, (4, 2)),
    lambda: op.concat([x, x], axis=0),
    lambda: op.concat([x, vector], axis=0),
    lambda: op.squeeze(tensor(2, 1, 3), [1]),
    lambda: op.expand_dims(x, [0, -1]),
    lambda: op.broadcast_to(x, (4, 2, 3)),
    lambda: op.take(x, indices, axis=1),
    lambda: op.strided_slice(x, axes=[0, 1], begin=[0, 1], end=[2, 3], strides=[1, 2]),
    lambda: op.where(tensor(2, 3, dtype="bool"), x, x),
    lambda: op.full((2, n), relax.const(1.0), dtype="float16"),
    lambda: op.arange(0, 10, 2),
    lambda: op.astype(x, "float16"),
    lambda: op.einsum((x, y), "ij,jk->ik"),
    lambda: op.layout_transform(x, lambda i, j: (j, i)),
    lambda: op.nn.softmax(x, axis=3),
    lambda: op.nn.conv2d(image, kernel, strides=2, padding=[1, 2, 3, 4]),
    lambda: op.nn.conv2d(x, kernel),
    lambda: op.nn.max_pool2d(image, pool_size=(2, 2), strides=(2, 2), ceil_mode=True),
    lambda: op.nn.layer_norm(x, vector, vector, axes=-1),
    lambda: op.nn.pixel_shuffle(tensor(1, 8, 10, 15), 2),
    lambda: op.image.resize2d(image, 14),
    lambda: R.reshape(x, R.shape([3, 2])),
    lambda: R.add(x, R.const(1.0, "float32")),
    lambda: R.sum(unknown, keepdims=True),
    lambda: R.hint_on_device(x, tvm.cpu(0)),
]
for number, call in enumerate(CALLS):
    try:
        ty = relax.BlockBuilder().normalize(call()).ty
        # Dimensions as text: the two print types in different ways.
        dims = [str(d).replace("T.int64(", "").replace(")", "") for d in ty.shape or ()]
        print(number, dims, str(ty.dtype), int(ty.ndim))
    except Exception:  # TVM and relaxlab have errors of their own for what has no type
        print(number, "has no type")
