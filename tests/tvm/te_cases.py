"""Tensor expressions that are made with TVM and with relaxlab, and run on the same numbers."""

OPERATORS = """
topi.add(x, y) | x=2,3,4 y=3,4
topi.subtract(x, 2.0) | x=2,3
topi.multiply(x, y) | x=2,1,4 y=3,1
topi.divide(x, y) | x=2,3 y=2,3
topi.maximum(x, y) | x=2,3 y=3
topi.minimum(x, y) | x=2,3 y=3
topi.power(topi.abs(x), y) | x=2,3 y=2,3
topi.mod(x, y) | x=4:int32 y=4:int32
topi.floor_divide(x, 3) | x=4:int32
topi.left_shift(x, y) | x=4:int32 y=4:int32
topi.bitwise_and(x, y) | x=4:int32 y=4:int32
topi.bitwise_not(x) | x=4:int32
topi.equal(x, y) | x=2,3 y=2,3
topi.greater(x, y) | x=2,3 y=3
topi.less_equal(x, y) | x=2,3 y=3
topi.logical_and(topi.greater(x, y), topi.less(x, z)) | x=2,3 y=3 z=3
topi.logical_not(topi.greater(x, y)) | x=2,3 y=3
topi.log_add_exp(x, y) | x=2,3 y=2,3
topi.abs(x) | x=2,3
topi.exp(x) | x=2,3
topi.tanh(x) | x=2,3
topi.sigmoid(x) | x=2,3
topi.erf(x) | x=2,3
topi.sqrt(topi.abs(x)) | x=2,3
topi.rsqrt(topi.add(topi.abs(x), 1.0)) | x=2,3
topi.log(topi.add(topi.abs(x), 1.0)) | x=2,3
topi.floor(x) | x=2,3
topi.ceil(x) | x=2,3
topi.round(x) | x=2,3
topi.trunc(x) | x=2,3
topi.sign(x) | x=2,3
topi.negative(x) | x=2,3
topi.identity(x) | x=2,3
topi.sin(x) | x=2,3
topi.atan(x) | x=2,3
topi.isnan(x) | x=2,3
topi.fast_exp(x) | x=2,3
topi.fast_tanh(x) | x=2,3
topi.fast_erf(x) | x=2,3
topi.cast(x, "int32") | x=2,3
topi.reinterpret(x, "int32") | x=2,3
topi.clip(x, -0.5, 0.5) | x=2,3
topi.sum(x) | x=2,3,4
topi.sum(x, axis=[0, 2], keepdims=True) | x=2,3,4
topi.max(x, axis=1) | x=2,3,4
topi.min(x, axis=-1) | x=2,3,4
topi.prod(x, axis=1) | x=2,3,4
topi.all(topi.greater(x, y), axis=1) | x=2,3 y=3
topi.any(topi.greater(x, y), axis=0, keepdims=True) | x=2,3 y=3
te.compute((2, 3), lambda i, j: te.max(x[i, j], 0)) | x=2,3
te.compute((2, 3), lambda i, j: te.min(x[i, j], y[j], -0.5)) | x=2,3 y=3
te.compute((2, 3), lambda i, j: te.sum(x[i, j], y[j])) | x=2,3 y=3
topi.argmax(x, axis=1) | x=2,3,4
topi.argmin(x, axis=1, keepdims=True) | x=2,3,4
topi.collapse_sum(x, (3, 1)) | x=2,3,4
topi.transpose(x, (2, 0, 1)) | x=2,3,4
topi.transpose(x) | x=2,3
topi.reshape(x, (4, 6)) | x=2,3,4
topi.squeeze(x, 0) | x=1,3
topi.squeeze(x) | x=1,3,1
topi.expand_dims(x, 1, 2) | x=2,3
topi.concatenate((x, y), axis=1) | x=2,3 y=2,4
topi.stack([x, y], axis=1) | x=2,3 y=2,3
topi.split(x, 2, axis=1) | x=2,4
topi.split(x, [1, 3], axis=1) | x=2,4
topi.take(x, i) | x=2,3 i=2:int32
topi.take(x, i, axis=1) | x=2,3 i=2:int32
topi.take(x, i, axis=1, mode="clip") | x=2,3 i=2:int32
topi.gather(x, 1, i) | x=2,3 i=2,2:int64
topi.gather_nd(x, i) | x=2,3 i=2,4:int32
topi.flip(x, axis=1) | x=2,3
topi.tile(x, (2, 1)) | x=2,3
topi.repeat(x, 2, 1) | x=2,3
topi.broadcast_to(x, (4, 2, 3)) | x=2,3
topi.strided_slice(x, [0, 1], [2, 5], [1, 2]) | x=2,6
topi.strided_slice(x, [1], [5], [2], axes=[1]) | x=2,6
topi.where(topi.greater(x, y), x, y) | x=2,3 y=2,3
topi.one_hot(i, topi_const(1.0), topi_const(0.0), 4, -1, "float32") | i=3:int32
topi.sequence_mask(x, i, mask_value=-1.0, axis=1) | x=2,4 i=2:int32
topi.full((2, 3), "float32", 1.5) |
topi.full_like(x, 2.0) | x=2,3
topi.arange(0, 6, 2, "int32") |
topi.eye(3, 4, 1) |
topi.meshgrid([x, y], "ij") | x=3 y=4
topi.matrix_set_diag(x, y) | x=2,3,3 y=2,3
topi.tensordot(x, y, ((1, 2), (0, 1))) | x=2,3,4 y=3,4,5
topi.tensordot(x, y, 1) | x=2,3 y=3,4
topi.einsum("ij,jk->ik", x, y) | x=2,3 y=3,4
topi.matmul(x, y) | x=2,3 y=3,4
topi.matmul(x, y, True, True) | x=3,2 y=4,3
topi.trilu(x, topi_const(1, "int32"), True) | x=3,4
topi.trilu(x, topi_const(0, "int32"), False) | x=3,4
topi.sliding_window(x, 1, [2, 2], [1, 2]) | x=2,4,6
topi.layout_transform(x, "NCHW", "NHWC") | x=2,3,4,5
topi.layout_transform(x, "NCHW", "NCHW2c") | x=2,4,4,5
topi.shape(x) | x=2,3
topi.elemwise_sum([x, y, x]) | x=2,3 y=2,3
topi.reverse_sequence(x, i, 1, 0) | x=2,4 i=2:int32
topi.expand_like(x, y, [1]) | x=2,4 y=2,3,4
topi.cumsum(x, axis=1) | x=2,4
topi.cumprod(x, axis=0) | x=2,4
topi.searchsorted(x, y) | x=5 y=3
topi.scatter_elements(x, i, y, axis=1) | x=2,3 i=2,1:int64 y=2,1
topi.scatter_nd(x, i, y, "add") | x=4 i=1,2:int32 y=2
topi.nn.relu(x) | x=2,3
topi.nn.leaky_relu(x, 0.1) | x=2,3
topi.nn.prelu(x, y, 1) | x=2,3,4 y=3
topi.nn.softmax(x, axis=1) | x=2,3,4
topi.nn.log_softmax(x) | x=2,3
topi.nn.fast_softmax(x) | x=2,3
topi.nn.softplus(x) | x=2,3
topi.nn.flatten(x) | x=2,3,4
topi.nn.dense(x, y) | x=2,3 y=4,3
topi.nn.dense(x, y, z) | x=2,3 y=4,3 z=4
topi.nn.batch_matmul(x, y) | x=2,3,4 y=2,5,4
topi.nn.batch_matmul(x, y, transpose_a=True, transpose_b=False) | x=2,4,3 y=2,4,5
topi.nn.matmul(x, y, transpose_b=True) | x=2,3 y=4,3
topi.nn.matmul(x, y, z) | x=2,3 y=3,4 z=4
topi.nn.pad(x, (0, 1), (2, 0), 1.0) | x=2,3
topi.nn.pad(x, (1, 1)) | x=2,3
topi.nn.reflect_pad(x, (1, 1)) | x=3,4
topi.nn.replicate_pad(x, (1, 2), (0, 1)) | x=3,4
topi.nn.circular_pad(x, (1, 1)) | x=3,4
topi.nn.mirror_pad(x, (1, 1), mode="REFLECT") | x=3,4
topi.nn.dilate(x, (2, 1)) | x=2,3
topi.nn.conv1d(x, y, 1, "SAME") | x=2,3,8 y=4,3,3
topi.nn.conv1d_ncw(x, y, 2, 1) | x=2,3,8 y=4,3,3
topi.nn.conv2d(x, y, 1, 1, 1) | x=1,3,6,5 y=4,3,3,3
topi.nn.conv2d(x, y, (2, 1), (1, 0), 1, data_layout="NHWC") | x=1,6,5,3 y=3,3,3,4
topi.nn.conv2d_nchw(x, y, 1, (1, 1, 0, 2), 1) | x=1,3,6,5 y=4,3,3,3
topi.nn.conv2d_nhwc(x, y, 1, "VALID", (2, 1)) | x=1,6,5,3 y=3,3,3,4
topi.nn.conv2d_hwcn(x, y, 1, 1, 1) | x=6,5,3,1 y=3,3,3,4
topi.nn.group_conv2d_nchw(x, y, 1, 1, 1, 2) | x=1,4,6,5 y=6,2,3,3
topi.nn.depthwise_conv2d_nchw(x, y, 1, 1, 1) | x=1,3,6,5 y=3,2,3,3
topi.nn.depthwise_conv2d_nhwc(x, y, 1, 1, 1) | x=1,6,5,3 y=3,3,3,2
topi.nn.conv2d_transpose_nchw(x, y, (2, 2), 1, "float32", (1, 0)) | x=1,3,4,5 y=3,2,3,3
topi.nn.conv1d_transpose_ncw(x, y, (2,), 1, "float32", (1,)) | x=1,3,4 y=3,2,3
topi.nn.conv3d_ncdhw(x, y, 1, 1, 1, 1) | x=1,2,3,4,3 y=2,2,3,3,3
topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max") | x=1,3,6,5
topi.nn.pool2d(x, (2, 3), (1, 2), (1, 1), (1, 0, 0, 1), "avg", count_include_pad=False) | x=1,3,6,5
topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "avg", layout="NHWC") | x=1,6,4,3
topi.nn.pool1d(x, [2], [2], [1], [0, 0], "max") | x=1,3,6
topi.nn.pool3d(x, [2] * 3, [1] * 3, [1] * 3, [0] * 6, "avg") | x=1,2,3,4,3
topi.nn.global_pool(x, "avg") | x=1,3,6,5
topi.nn.adaptive_pool(x, (2, 3), "avg") | x=1,3,4,6
topi.nn.adaptive_pool(x, (2, 2), "max") | x=1,3,4,6
topi.nn.batch_norm(x, y, z, v, w) | x=2,3,4 y=3 z=3 v=3 w=3:abs
topi.nn.layer_norm(x, y, z, [-1]) | x=2,3,4 y=4 z=4
topi.nn.group_norm(x, y, z, 2, 1, [2, 3]) | x=2,4,3,3 y=4 z=4
topi.nn.instance_norm(x, y, z, 1, [2, 3]) | x=2,4,3,3 y=4 z=4
topi.nn.rms_norm(x, y, [-1]) | x=2,3,4 y=4
topi.nn.scale_shift_nchw(x, y, z) | x=1,3,2,2 y=3 z=3
topi.nn.scale_shift_nhwc(x, y, z) | x=1,2,2,3 y=3 z=3
topi.nn.lrn(x, 3) | x=1,4,2,2
topi.nn.depth_to_space(x, 2) | x=1,8,2,3
topi.nn.space_to_depth(x, 2) | x=1,2,4,6
topi.nn.space_to_batch_nd(x, [2, 2], [0, 0], [0, 0]) | x=1,4,4,3
topi.nn.upsampling(x, 2, 2) | x=1,2,3,3
topi.image.resize2d(x, (0.0,) * 4, (6, 4)) | x=1,2,3,3
topi.image.resize2d(x, (0.0,) * 4, (4, 5), method="nearest_neighbor", layout="NHWC") | x=1,3,3,2
topi.image.resize2d(x, (0.0,) * 4, (4, 5), coordinate_transformation_mode="align_corners") | x=1,2,3,3
topi.image.grid_sample(x, y) | x=1,2,4,5 y=1,2,3,3
topi.image.affine_grid(x, (3, 4)) | x=2,2,3
""".strip().splitlines()  # noqa: E501
"""Calls of `tvm.topi`, and the shapes and dtypes of the placeholders that they read."""

PROGRAMS = {
    "a product": ("a=3,4 b=4,5", """
k = te.reduce_axis((0, 4), name="k")
te.compute((3, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
"""),
    "stages": ("a=3,4", """
b = te.compute(a.shape, lambda i, j: a[i, j] * 2.0 + 1.0, name="B")
c = te.compute(a.shape, lambda i, j: te.exp(b[i, j]) - te.max_value("float32") * 0.0, name="C")
te.compute((4, 3), lambda i, j: c[j, i], name="D")
"""),
    "two axes": ("a=3,4,5", """
i, j = te.reduce_axis((0, 3), "i"), te.reduce_axis((1, 4), "j")
te.compute((5,), lambda k: te.max(a[i, j, k], axis=[i, j]))
"""),
    "a window": ("a=8", """
r = te.reduce_axis((0, 3))
te.compute((6,), lambda i: te.sum(a[i + r], axis=r))
"""),
    "a condition": ("a=4,5", """
te.compute((4, 5), lambda i, j: te.if_then_else(te.all(i > 0, j < 3), a[i - 1, j], 0.0))
"""),
    "conditions on indices": ("a=4,4", """
where = lambda i, j: te.all((i + j) % 2 != 0, i // 2 == j // 2)
te.compute((4, 4), lambda i, j: tirx.Select(where(i, j), a[i, j], 0.0))
"""),
    "a choice": ("a=4", "te.compute((4,), lambda i: tirx.Select(i % 2 == 0, a[i], -a[i]))"),
    "indices": ("a=6,2 i=3:int32", "te.compute((3, 2), lambda n, j: a[i[n] * 2, j])"),
    "numbers of places": ("", """
te.compute((3, 4), lambda i, j: tirx.Cast("float32", i * 4 + j) / tirx.const(2.0, "float32"))
"""),
    "any number of axes": ("a=2,3,4", "te.compute(a.shape, lambda *i: te.sqrt(te.abs(a(*i))))"),
    "several results": ("a=3,4", """
te.compute((3, 4), lambda i, j: (a[i, j] + 1.0, a[i, j] * 2.0), name="S")
"""),
    "several tensors": ("a=3,4 b=3,4", """
c = te.compute((3, 4), lambda i, j: a[i, j] + b[i, j], name="C")
d = te.compute((3, 4), lambda i, j: c[i, j] * b[i, j], name="D")
[c, d]
"""),
    "a reducer of one's own": ("a=3,4", """
product = te.comm_reducer(lambda x, y: x * y, lambda t: tirx.const(1, dtype=t), name="product")
k = te.reduce_axis((0, 4), name="k")
te.compute((3,), lambda i: product(a[i, k], axis=k))
"""),
    "the place of the largest": ("a=3,4", """
def better(x, y):
    chosen = tirx.Select(x[1] >= y[1], x[0], y[0])
    return chosen, tirx.Select(x[1] >= y[1], x[1], y[1])
def least(t0, t1):
    return tirx.const(-1, t0), te.min_value(t1)
largest = te.comm_reducer(better, least, name="largest")
k = te.reduce_axis((0, 4), name="k")
list(te.compute((3,), lambda i: largest((tirx.Cast("int32", k.var), a[i, k]), axis=k)))
"""),
    "functions": ("a=4", """
b = te.compute((4,), lambda i: te.power(te.abs(a[i]), 2.0) + te.floor(a[i]) + te.tanh(a[i]))
te.compute((4,), lambda i: te.sigmoid(b[i]) + te.erf(a[i]) + te.log(te.abs(a[i]) + 1.0))
"""),
    "integers": ("x=8:int32", """
y = te.compute((8,), lambda i: te.floordiv(x[i] - 3, 2) + te.floormod(x[i] - 3, 2) + (x[i] << 1))
te.compute((8,), lambda i: y[i] + te.truncdiv(x[i] - 3, 2))
"""),
    "operators of tensors": ("x=2,3 y=2,3", "x * 2.0 + y - x / y"),
    "operators after expressions": ("x=2,3 y=3", """
z = te.compute((2, 3), lambda i, j: x[i, j] * x[i, j], name="Z")
topi.nn.softmax(topi.add(z, y))
"""),
    "slices": ("x=2,3", "te.compute((2, 3), lambda i, j: x[i][j] + x[i, j])"),
    "the first and the last": ("x=4", """
n = x.shape[0]
te.compute((4,), lambda i: x[tirx.max(i - 1, 0)] + x[tirx.min(i + 1, n - 1)])
"""),
}  # fmt: skip
"""Programs that end in tensors, with the placeholders that they read."""
