"""The namespace `R` of the script: graph functions. Written by tools/write_reference.py."""

from __future__ import annotations

# pyright: reportUnusedImport=false, reportMissingModuleSource=false
# Names of the script hide those of Python: `R.sum`, `T.bool`.
from builtins import bool as _bool, float as _float, int as _int, str as _str
from collections.abc import Callable as _Callable, Iterator as _Iterator, Sequence as _Sequence
from contextlib import AbstractContextManager as _Context
from typing import Any as _Any, TypeVar as _TypeVar, overload as _overload

from relaxlab.ir.graph import Function as _Function
from relaxlab.script.stub_types import Argument as _Argument, Buffer as _Buffer, Value as _Value

@_overload
def function(f: _Callable[..., _Any], /) -> _Function:
    """Read a Python function as a graph function.
    
    `private`: passes may change or remove it; `pure=False`: it may have effects. The options are
    read from the source. Raises DiagnosticError with everything that is wrong in it."""

@_overload
def function(*, private: _bool = False, pure: _bool = True, check_well_formed: _bool = True) -> _Callable[[_Callable[..., _Any]], _Function]:
    """Read a Python function as a graph function.
    
    `private`: passes may change or remove it; `pure=False`: it may have effects. The options are
    read from the source. Raises DiagnosticError with everything that is wrong in it."""

_C = _TypeVar("_C", bound=type)

def data(cls: _C, /) -> _C:
    """Declare an algebraic data type in a module: the annotated names are its constructors."""

class _adt:
    """The names R.adt.*"""

    @staticmethod
    def construct(*fields: _Argument, data: _Argument, constructor: _Argument, tag: _Argument) -> _Value:
        """The value of a data type that a constructor makes of its fields.

        Constants: data, constructor, tag.
        """

    @staticmethod
    def field(value: _Argument, constructor: _Argument, index: _Argument) -> _Value:
        """A field of a value that is known to be of a constructor.

        Constants: constructor, index.
        """

    @staticmethod
    def tag(value: _Argument) -> _Value:
        """The number of the constructor of a value, in the order of their declaration."""

adt: _adt

class _builtin:
    """The names R.builtin.*"""

    @staticmethod
    def alloc_tensor(shape: _Argument, dtype: _Argument, runtime_device_index: _Argument, storage_scope: _Any = None) -> _Value:
        """A new tensor, its elements not initialised.

            R.builtin.alloc_tensor(R.shape([2, 3]), R.dtype("float32"), R.prim_value(0))  # -> (2, 3)
        """

    @staticmethod
    def stop_lift_params(x: _Argument) -> _Value:
        """The same value; nothing that depends on it is computed ahead of time.

            R.builtin.stop_lift_params(x)  # (2, 3) -> (2, 3)
        """

builtin: _builtin

class _ccl:
    """The names R.ccl.*"""

    @staticmethod
    def allgather(x: _Argument, num_workers: _Argument, in_group: _bool = True) -> _Value:
        """The tensors of all workers, behind each other along the first dimension.

        Constants: num_workers, in_group.

            R.ccl.allgather(x, 2)  # (2, 3) -> (4, 3)
        """

    @staticmethod
    def allreduce(x: _Argument, op_type: _str = 'sum', in_group: _bool = True) -> _Value:
        """The `sum`, `prod`, `min`, `max` or `avg` of the tensors of all workers.

        Constants: op_type, in_group.

            R.ccl.allreduce(x, "sum")  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def broadcast_from_worker0(x: _Argument) -> _Value:
        """The tensor of the first worker.

            R.ccl.broadcast_from_worker0(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def scatter_from_worker0(x: _Argument, num_workers: _Argument, axis: _int | _Sequence[_int] = 0) -> _Value:
        """A worker's part of the tensor of the first one, along an axis.

        Constants: num_workers, axis.

            R.ccl.scatter_from_worker0(x, 2)  # (2, 3) -> (1, 3)
        """

ccl: _ccl

class _dist:
    """The names R.dist.*"""

    @staticmethod
    def redistribute_replica_to_shard(input: _Argument, num_workers: _Argument, axis: _Argument) -> _Value:
        """A worker's part of a tensor that all have, along an axis.

        Constants: num_workers, axis.

            R.dist.redistribute_replica_to_shard(x, 2, 0)  # (2, 3) -> (1, 3)
        """

dist: _dist

class _grad:
    """The names R.grad.*"""

    @staticmethod
    def avg_pool2d_backward(output_grad: _Argument, data: _Argument, pool_size: _Any = (1, 1), strides: _Any = (1, 1), padding: _Any = (0, 0, 0, 0), dilation: _Any = (1, 1), ceil_mode: _bool = False, count_include_pad: _bool = False, layout: _str = 'NCHW', out_layout: _Any = None) -> _Value:
        """The gradient of `nn.avg_pool2d` with respect to its data.

        Constants: pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out_layout.

        Dtypes of output_grad: floating point.

            R.grad.avg_pool2d_backward(g, x, pool_size=(2, 2), strides=(2, 2))  # (1, 3, 4, 4), (1, 3, 8, 8) -> (1, 3, 8, 8)
        """

    @staticmethod
    def end_checkpoint(input: _Argument) -> _Value:
        """The same value; marks where a checkpoint of differentiation ends.

            R.grad.end_checkpoint(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def max_pool2d_backward(output_grad: _Argument, data: _Argument, pool_size: _Any = (1, 1), strides: _Any = (1, 1), padding: _Any = (0, 0, 0, 0), dilation: _Any = (1, 1), ceil_mode: _bool = False, count_include_pad: _bool = False, layout: _str = 'NCHW', out_layout: _Any = None) -> _Value:
        """The gradient of `nn.max_pool2d` with respect to its data.

        Constants: pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out_layout.

        Dtypes of output_grad: floating point.

            R.grad.max_pool2d_backward(g, x, pool_size=(2, 2), strides=(2, 2))  # (1, 3, 4, 4), (1, 3, 8, 8) -> (1, 3, 8, 8)
        """

    @staticmethod
    def nll_loss_backward(output_grad: _Argument, predictions: _Argument, targets: _Argument, weights: _Any = None, reduction: _str = 'mean', ignore_index: _int | _Sequence[_int] = -100) -> _Value:
        """The gradient of `nn.nll_loss` with respect to the predictions.

        Constants: reduction, ignore_index.

        Dtypes of output_grad: floating point.

            R.grad.nll_loss_backward(g, x, t)  # (), (2, 5), (2,) int64 -> (2, 5)
        """

    @staticmethod
    def no_grad(input: _Argument) -> _Value:
        """The same value, whose gradient is zero.

            R.grad.no_grad(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def reduce_window_max_backward(output_grad: _Argument, data: _Argument, padding: _Argument, window: _Argument, strides: _Any = None, dilation: _Any = None) -> _Value:
        """The gradient of the maxima of `reduce_window` with respect to its data; it goes to the first maximum of each window.

        Constants: window, strides, dilation.

        Dtypes of output_grad: floating point.

            R.grad.reduce_window_max_backward(g, x, (0, 0, 0, 0), window=(2, 3), strides=(1, 3))  # (4, 2), (5, 6) -> (5, 6)
        """

    @staticmethod
    def start_checkpoint(input: _Argument) -> _Value:
        """The same value; marks where a checkpoint of differentiation starts.

            R.grad.start_checkpoint(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def take_backward(output_grad: _Argument, x: _Argument, indices: _Argument, axis: _Any = None) -> _Value:
        """The gradient of `take` with respect to the tensor that it reads.

        Constants: axis.

        Dtypes of output_grad: floating point.

            R.grad.take_backward(g, x, i, axis=0)  # (2, 3), (5, 3), (2,) int64 -> (5, 3)
        """

grad: _grad

class _image:
    """The names R.image.*"""

    @staticmethod
    def affine_grid(data: _Argument, size: _Argument, align_corners: _bool = True) -> _Value:
        """The places that an affine map per image, a matrix (2, 3) or (3, 4), makes of those of an image of another size.

        Constants: align_corners.

        Dtypes of data: floating point.

            R.image.affine_grid(x, (4, 5))  # (2, 2, 3) -> (2, 2, 4, 5)
        """

    @staticmethod
    def grid_sample(data: _Argument, grid: _Argument, method: _str = 'bilinear', layout: _str = 'NCHW', padding_mode: _str = 'zeros', align_corners: _bool = False) -> _Value:
        """The images read at the places of a grid.

        Constants: method, layout, padding_mode, align_corners.

        Dtypes of data: floating point.

            R.image.grid_sample(x, g, padding_mode="border")  # (1, 3, 8, 8), (1, 2, 4, 5) -> (1, 3, 4, 5)
        """

    @staticmethod
    def resize2d(data: _Argument, size: _Argument, roi: _Any = None, layout: _str = 'NCHW', method: _str = 'linear', coordinate_transformation_mode: _str = 'half_pixel', rounding_method: _str = 'round', cubic_alpha: _float = -0.75, cubic_exclude: _int | _Sequence[_int] = 0, extrapolation_value: _float = 0.0, out_dtype: _Any = None) -> _Value:
        """The images in another size, by the method `nearest_neighbor`, `linear` or `cubic`.

        Constants: roi, layout, method, coordinate_transformation_mode, rounding_method, cubic_alpha, cubic_exclude, extrapolation_value, out_dtype.

        Dtypes of data: integers, floating point.

            R.image.resize2d(x, (4, 6), method="cubic")  # (1, 3, 8, 8) -> (1, 3, 4, 6)
        """

    @staticmethod
    def resize3d(data: _Argument, size: _Argument, roi: _Any = None, layout: _str = 'NCDHW', method: _str = 'linear', coordinate_transformation_mode: _str = 'half_pixel', rounding_method: _str = '', cubic_alpha: _float = -0.75, cubic_exclude: _int | _Sequence[_int] = 0, extrapolation_value: _float = 0.0, out_dtype: _Any = None) -> _Value:
        """As `image.resize2d`, in three dimensions.

        Constants: roi, layout, method, coordinate_transformation_mode, rounding_method, cubic_alpha, cubic_exclude, extrapolation_value, out_dtype.

        Dtypes of data: integers, floating point.

            R.image.resize3d(x, (2, 4, 6))  # (1, 3, 8, 8, 8) -> (1, 3, 2, 4, 6)
        """

image: _image

class _inspect:
    """The names R.inspect.*"""

    @staticmethod
    def tensor_byte_offset(tensor: _Argument) -> _Value:
        """The offset of a tensor's data in bytes.

            R.inspect.tensor_byte_offset(x)  # (2, 3) -> R.Prim(value=0)
        """

    @staticmethod
    def tensor_dtype_bits(tensor: _Argument) -> _Value:
        """The number of bits of an element.

            R.inspect.tensor_dtype_bits(x)  # (2, 3) -> R.Prim(value=32)
        """

    @staticmethod
    def tensor_dtype_code(tensor: _Argument) -> _Value:
        """DLPack's number for the kind of the dtype.

            R.inspect.tensor_dtype_code(x)  # (2, 3) -> R.Prim(value=2)
        """

    @staticmethod
    def tensor_dtype_lanes(tensor: _Argument) -> _Value:
        """The number of lanes of an element.

            R.inspect.tensor_dtype_lanes(x)  # (2, 3) -> R.Prim(value=1)
        """

    @staticmethod
    def tensor_elem_offset(tensor: _Argument) -> _Value:
        """The offset of a tensor's data in elements.

            R.inspect.tensor_elem_offset(x)  # (2, 3) -> R.Prim(value=0)
        """

    @staticmethod
    def tensor_ndim(tensor: _Argument) -> _Value:
        """The number of dimensions of a tensor.

            R.inspect.tensor_ndim(x)  # (2, 3) -> R.Prim(value=2)
        """

    @staticmethod
    def tensor_shape_i(tensor: _Argument, axis: _Argument) -> _Value:
        """The extent of one dimension.

            R.inspect.tensor_shape_i(x, R.prim_value(0))  # (2, 3) -> R.Prim(value=2)
        """

    @staticmethod
    def tensor_stride_i(tensor: _Argument, axis: _Argument) -> _Value:
        """The distance in elements between neighbours along one dimension.

            R.inspect.tensor_stride_i(x, R.prim_value(0))  # (2, 3) -> R.Prim(value=3)
        """

inspect: _inspect

class _linalg:
    """The names R.linalg.*"""

    @staticmethod
    def cholesky(x: _Argument, upper: _bool = False) -> _Value:
        """The triangle whose product with its transpose is a symmetric positive definite matrix; NaN for another matrix. It reads the triangle that it fills, the lower one unless `upper`.

        Constants: upper.

        Dtypes of x: floating point.

            R.linalg.cholesky(x)  # (2, 3, 3) -> (2, 3, 3)
        """

    @staticmethod
    def det(x: _Argument) -> _Value:
        """The determinant.

        Dtypes of x: floating point.

            R.linalg.det(x)  # (2, 3, 3) -> (2,)
        """

    @staticmethod
    def eigh(x: _Argument, upper: _bool = False) -> _Value:
        """The eigenvalues of a symmetric matrix, the least first, and its eigenvectors, one a column.

        Constants: upper.

        Dtypes of x: floating point.

            R.linalg.eigh(x)  # (2, 3, 3) -> ((2, 3), (2, 3, 3))
        """

    @staticmethod
    def inv(x: _Argument) -> _Value:
        """The inverse; a singular matrix is an error.

        Dtypes of x: floating point.

            R.linalg.inv(x)  # (2, 3, 3) -> (2, 3, 3)
        """

    @staticmethod
    def lu(x: _Argument) -> _Value:
        """A lower triangle with ones on its diagonal, which are not stored, and an upper one, in one matrix; the row with which each row was exchanged; and the resulting order of the rows.

        Dtypes of x: floating point.

            R.linalg.lu(x)  # (2, 3, 4) -> ((2, 3, 4), (2, 3) int32, (2, 3) int32)
        """

    @staticmethod
    def qr(x: _Argument, full_matrices: _bool = False) -> _Value:
        """A matrix with orthonormal columns and an upper triangle, whose product the matrix is.

        Constants: full_matrices.

        Dtypes of x: floating point.

            R.linalg.qr(x)  # (2, 4, 3) -> ((2, 4, 3), (2, 3, 3))
        """

    @staticmethod
    def slogdet(x: _Argument) -> _Value:
        """The sign of the determinant, and the logarithm of its size.

        Dtypes of x: floating point.

            R.linalg.slogdet(x)  # (2, 3, 3) -> ((2,), (2,))
        """

    @staticmethod
    def solve(a: _Argument, b: _Argument) -> _Value:
        """The solution of `a @ x = b`; a singular matrix is an error.

        Dtypes of a: floating point.

            R.linalg.solve(a, b)  # (2, 3, 3), (2, 3, 4) -> (2, 3, 4)
        """

    @staticmethod
    def svd(x: _Argument, full_matrices: _bool = False) -> _Value:
        """Left singular vectors, one a column, singular values, the greatest first, and right singular vectors, one a row; `full_matrices` completes the vectors to a basis.

        Constants: full_matrices.

        Dtypes of x: floating point.

            R.linalg.svd(x)  # (2, 4, 3) -> ((2, 4, 3), (2, 3), (2, 3, 3))
        """

    @staticmethod
    def triangular_solve(a: _Argument, b: _Argument, upper: _bool = False, unit_diagonal: _bool = False) -> _Value:
        """The solution of `a @ x = b` for a lower triangle, or an `upper` one.

        Constants: upper, unit_diagonal.

        Dtypes of a: floating point.

            R.linalg.triangular_solve(a, b, upper=True)  # (3, 3), (3, 2) -> (3, 2)
        """

linalg: _linalg

class _memory:
    """The names R.memory.*"""

    @staticmethod
    def alloc_storage(size: _Argument, virtual_device_index: _Argument, storage_scope: _Argument, dtype: _Argument) -> _Value:
        """A new piece of memory of a size in bytes."""

    @staticmethod
    def alloc_tensor(storage: _Argument, offset: _Argument, shape: _Argument, dtype: _Argument, runtime_device_index: _Any = None) -> _Value:
        """A tensor at an offset in bytes of a storage."""

    @staticmethod
    def ensure_zero_offset(data: _Argument) -> _Value:
        """The same tensor at the start of its memory.

            R.memory.ensure_zero_offset(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def kill_storage(object: _Argument) -> _Value:
        """The end of the life of a storage."""

    @staticmethod
    def kill_tensor(object: _Argument) -> _Value:
        """The end of the life of a tensor."""

    @staticmethod
    def view(data: _Argument, shape: _Any = None, dtype: _Any = None, relative_byte_offset: _Any = None) -> _Value:
        """A copy of a tensor's bytes from an offset as a tensor of another shape or dtype.

            R.memory.view(x, R.shape([3, 2]))  # (2, 3) -> (3, 2)
        """

memory: _memory

class _nn:
    """The names R.nn.*"""

    @staticmethod
    def adaptive_avg_pool1d(data: _Argument, output_size: _Any = None, layout: _str = 'NCW', out_layout: _Any = None) -> _Value:
        """Means of windows chosen so that the result has `output_size`.

        Constants: output_size, layout, out_layout.

        Dtypes of data: integers, floating point.

            R.nn.adaptive_avg_pool1d(x, 2)  # (1, 3, 8) -> (1, 3, 2)
        """

    @staticmethod
    def adaptive_avg_pool2d(data: _Argument, output_size: _Any = None, layout: _str = 'NCHW', out_layout: _Any = None) -> _Value:
        """Means of windows chosen so that the result has `output_size`.

        Constants: output_size, layout, out_layout.

        Dtypes of data: integers, floating point.

            R.nn.adaptive_avg_pool2d(x, 2)  # (1, 3, 8, 8) -> (1, 3, 2, 2)
        """

    @staticmethod
    def adaptive_avg_pool3d(data: _Argument, output_size: _Any = None, layout: _str = 'NCDHW', out_layout: _Any = None) -> _Value:
        """Means of windows chosen so that the result has `output_size`.

        Constants: output_size, layout, out_layout.

        Dtypes of data: integers, floating point.

            R.nn.adaptive_avg_pool3d(x, 2)  # (1, 3, 8, 8, 8) -> (1, 3, 2, 2, 2)
        """

    @staticmethod
    def attention(query: _Argument, key: _Argument, value: _Argument, bias: _Any = None, scale: _Any = None, causal_mask: _Any = None, window_size: _Any = None) -> _Value:
        """Scaled dot-product attention: the softmax of `query @ key.T * scale` times `value`.

        Constants: scale, causal_mask, window_size.

        Dtypes of query: floating point.

            R.nn.attention(q, k, v, causal_mask="TopLeft")  # (1, 4, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8) -> (1, 4, 2, 8)
        """

    @staticmethod
    def attention_bias(query: _Argument, key: _Argument, value: _Argument, bias: _Argument, scale: _Any = None, causal_mask: _Any = None, window_size: _Any = None) -> _Value:
        """Scaled dot-product attention with a bias that is added to the scores.

        Constants: scale, causal_mask, window_size.

        Dtypes of query: floating point.

            R.nn.attention_bias(q, k, v, b)  # (1, 4, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8), (1, 2, 4, 4) -> (1, 4, 2, 8)
        """

    @staticmethod
    def attention_var_len(queries: _Argument, keys: _Argument, values: _Argument, seqstart_q: _Argument, max_seqlen_q: _Argument, seqstart_k: _Any = None, max_seqlen_k: _Any = None, scale: _Any = None, causal_mask: _Any = None, window_size: _Any = None) -> _Value:
        """Attention of sequences of different lengths that lie behind each other in one batch; `seqstart_q` has the first position of each.

        Constants: scale, causal_mask, window_size.

        Dtypes of queries: floating point.

            R.nn.attention_var_len(q, k, v, s, m)  # (1, 9, 2, 8), (1, 9, 2, 8), (1, 9, 2, 8), (3,) int32, () int32 -> (1, 9, 2, 8)
        """

    @staticmethod
    def attention_within(queries: _Argument, keys: _Argument, values: _Argument, before: _Argument, last: _Argument, starts: _Any = None, scale: _Any = None) -> _Value:
        """Attention of queries that see a range of keys each: query i sees the keys j with `before[i] < j <= last[i]`, two arrays that do not fall from query to query. The time grows with the number of keys that are seen. `starts`, where given, has the first query of each sequence and the number of all: the result is the same, and no tile has queries of two sequences.

        Constants: scale.

        Dtypes of queries: floating point.

            R.nn.attention_within(q, k, v, b, l)  # (1, 4, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8), (4,) int64, (4,) int64 -> (1, 4, 2, 8)
        """

    @staticmethod
    def avg_pool1d(data: _Argument, pool_size: _int | _Sequence[_int] = 1, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, ceil_mode: _bool = False, count_include_pad: _bool = True, layout: _str = 'NCW', out_layout: _Any = None) -> _Value:
        """The mean of each window of a sequence.

        Constants: pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out_layout.

        Dtypes of data: integers, floating point.

            R.nn.avg_pool1d(x, pool_size=2, strides=2)  # (1, 3, 8) -> (1, 3, 4)
        """

    @staticmethod
    def avg_pool2d(data: _Argument, pool_size: _int | _Sequence[_int] = 1, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, ceil_mode: _bool = False, count_include_pad: _bool = False, layout: _str = 'NCHW', out_layout: _Any = None) -> _Value:
        """The mean of each window of an image.

        Constants: pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out_layout.

        Dtypes of data: integers, floating point.

            R.nn.avg_pool2d(x, pool_size=2, strides=2)  # (1, 3, 8, 8) -> (1, 3, 4, 4)
        """

    @staticmethod
    def avg_pool3d(data: _Argument, pool_size: _int | _Sequence[_int] = 1, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, ceil_mode: _bool = False, count_include_pad: _bool = True, layout: _str = 'NCDHW', out_layout: _Any = None) -> _Value:
        """The mean of each window of a volume.

        Constants: pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out_layout.

        Dtypes of data: integers, floating point.

            R.nn.avg_pool3d(x, pool_size=2, strides=2)  # (1, 3, 8, 8, 8) -> (1, 3, 4, 4, 4)
        """

    @staticmethod
    def batch_flatten(data: _Argument) -> _Value:
        """The elements of each row of the first dimension in one dimension.

            R.nn.batch_flatten(x)  # (2, 3, 4) -> (2, 12)
        """

    @staticmethod
    def batch_norm(data: _Argument, gamma: _Argument, beta: _Argument, moving_mean: _Argument, moving_var: _Argument, axis: _Argument, epsilon: _float = 1e-05, center: _bool = True, scale: _bool = True, momentum: _float = 0.1, training: _bool = True) -> _Value:
        """Data normalised per channel, with the new running mean and variance.

        Constants: axis, epsilon, center, scale, momentum, training.

        Dtypes of data: floating point.

            R.nn.batch_norm(x, g, b, m, v, axis=1)  # (2, 3, 4, 4), (3,), (3,), (3,), (3,) -> ((2, 3, 4, 4), (3,), (3,))
        """

    @staticmethod
    def conv1d(data: _Argument, weight: _Argument, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, groups: _int | _Sequence[_int] = 1, data_layout: _str = 'NCW', kernel_layout: _str = 'OIW', out_layout: _Any = None, out_dtype: _Any = None) -> _Value:
        """The convolution of sequences with filters.

        Constants: strides, padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype.

        Dtypes of data: integers, floating point.

            R.nn.conv1d(x, w, padding=1)  # (1, 3, 8), (16, 3, 3) -> (1, 16, 8)
        """

    @staticmethod
    def conv1d_transpose(data: _Argument, weight: _Argument, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, output_padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, groups: _int | _Sequence[_int] = 1, data_layout: _str = 'NCW', kernel_layout: _str = 'IOW', out_layout: _Any = None, out_dtype: _Any = None) -> _Value:
        """The transposed convolution of sequences: the gradient of `conv1d`.

        Constants: strides, padding, output_padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype.

        Dtypes of data: integers, floating point.

            R.nn.conv1d_transpose(x, w, strides=2)  # (1, 3, 8), (3, 16, 3) -> (1, 16, 17)
        """

    @staticmethod
    def conv2d(data: _Argument, weight: _Argument, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, groups: _int | _Sequence[_int] = 1, data_layout: _str = 'NCHW', kernel_layout: _str = 'OIHW', out_layout: _Any = None, out_dtype: _Any = None) -> _Value:
        """The convolution of images with filters.

        Constants: strides, padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype.

        Dtypes of data: integers, floating point.

            R.nn.conv2d(x, w, padding=1)  # (1, 3, 8, 8), (16, 3, 3, 3) -> (1, 16, 8, 8)
        """

    @staticmethod
    def conv2d_transpose(data: _Argument, weight: _Argument, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, output_padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, groups: _int | _Sequence[_int] = 1, data_layout: _str = 'NCHW', kernel_layout: _str = 'IOHW', out_layout: _Any = None, out_dtype: _Any = None) -> _Value:
        """The transposed convolution of images: the gradient of `conv2d`.

        Constants: strides, padding, output_padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype.

        Dtypes of data: integers, floating point.

            R.nn.conv2d_transpose(x, w, strides=2)  # (1, 3, 8, 8), (3, 16, 3, 3) -> (1, 16, 17, 17)
        """

    @staticmethod
    def conv3d(data: _Argument, weight: _Argument, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, groups: _int | _Sequence[_int] = 1, data_layout: _str = 'NCDHW', kernel_layout: _str = 'OIDHW', out_layout: _Any = None, out_dtype: _Any = None) -> _Value:
        """The convolution of volumes with filters.

        Constants: strides, padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype.

        Dtypes of data: integers, floating point.

            R.nn.conv3d(x, w, padding=1)  # (1, 3, 4, 4, 4), (8, 3, 3, 3, 3) -> (1, 8, 4, 4, 4)
        """

    @staticmethod
    def conv3d_transpose(data: _Argument, weight: _Argument, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, output_padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, groups: _int | _Sequence[_int] = 1, data_layout: _str = 'NCDHW', kernel_layout: _str = 'IODHW', out_layout: _Any = None, out_dtype: _Any = None) -> _Value:
        """The transposed convolution of volumes: the gradient of `conv3d`.

        Constants: strides, padding, output_padding, dilation, groups, data_layout, kernel_layout, out_layout, out_dtype.

        Dtypes of data: integers, floating point.

            R.nn.conv3d_transpose(x, w, strides=2)  # (1, 3, 4, 4, 4), (3, 8, 3, 3, 3) -> (1, 8, 9, 9, 9)
        """

    @staticmethod
    def cross_entropy_with_logits(predictions: _Argument, labels: _Argument) -> _Value:
        """The cross entropy of logits and labels, averaged over rows.

        Dtypes of predictions: floating point.

            R.nn.cross_entropy_with_logits(x, y)  # (2, 5), (2, 5) -> ()
        """

    @staticmethod
    def dropout(data: _Argument, rate: _float = 0.5) -> _Value:
        """A tuple of the data, unchanged, and a mask of ones.

        Constants: rate.

        Dtypes of data: floating point.

            R.nn.dropout(x)  # (2, 3) -> ((2, 3), (2, 3))
        """

    @staticmethod
    def gelu(data: _Argument) -> _Value:
        """The Gaussian error linear unit `x * (1 + erf(x / sqrt(2))) / 2`.

        Dtypes of data: floating point.

            R.nn.gelu(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def gelu_tanh(data: _Argument) -> _Value:
        """The Gaussian error linear unit, approximated by tanh.

        Dtypes of data: floating point.

            R.nn.gelu_tanh(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def group_norm(data: _Argument, gamma: _Argument, beta: _Argument, num_groups: _Argument, channel_axis: _Argument, axes: _Argument, epsilon: _float = 1e-05, center: _bool = True, scale: _bool = True) -> _Value:
        """Data normalised per group of channels, then scaled and shifted per channel.

        Constants: num_groups, channel_axis, axes, epsilon, center, scale.

        Dtypes of data: floating point.

            R.nn.group_norm(x, g, b, num_groups=2, channel_axis=1, axes=[2, 3])  # (2, 4, 3, 3), (4,), (4,) -> (2, 4, 3, 3)
        """

    @staticmethod
    def instance_norm(data: _Argument, gamma: _Argument, beta: _Argument, channel_axis: _Argument, axes: _Argument, epsilon: _float = 1e-05, center: _bool = True, scale: _bool = True) -> _Value:
        """Data normalised per instance and channel, then scaled and shifted per channel.

        Constants: channel_axis, axes, epsilon, center, scale.

        Dtypes of data: floating point.

            R.nn.instance_norm(x, g, b, channel_axis=1, axes=[2, 3])  # (2, 4, 3, 3), (4,), (4,) -> (2, 4, 3, 3)
        """

    @staticmethod
    def key_ranges(shape: _Argument, seqstart_q: _Argument, seqstart_k: _Any = None, causal_mask: _Any = None, window_size: _Any = None, whole: _bool = False) -> _Value:
        """The keys that each query of sequences behind each other sees, as `R.nn.attention_within` takes them; the shape has the numbers of queries and of keys. With `whole`, the sequences must be all of the queries.

        Constants: causal_mask, window_size, whole.

        Dtypes of shape: integers.

            R.nn.key_ranges(R.shape([9, 9]), s)  # (3,) int32 -> ((9,) int64, (9,) int64)
        """

    @staticmethod
    def layer_norm(data: _Argument, gamma: _Argument, beta: _Argument, axes: _int | _Sequence[_int] = -1, epsilon: _float = 1e-05, center: _bool = True, scale: _bool = True) -> _Value:
        """Data with mean 0 and variance 1 along some axes, then scaled and shifted.

        Constants: axes, epsilon, center, scale.

        Dtypes of data: floating point.

            R.nn.layer_norm(x, g, b)  # (2, 3), (3,), (3,) -> (2, 3)
        """

    @staticmethod
    def leakyrelu(data: _Argument, alpha: _float = 0.01) -> _Value:
        """Each positive element, and `alpha` times each negative one.

        Constants: alpha.

        Dtypes of data: floating point.

            R.nn.leakyrelu(x, alpha=0.1)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def log_softmax(data: _Argument, axis: _int | _Sequence[_int] = -1) -> _Value:
        """The logarithm of the softmax along an axis, without overflow.

        Constants: axis.

        Dtypes of data: floating point.

            R.nn.log_softmax(x, axis=-1)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def max_pool1d(data: _Argument, pool_size: _int | _Sequence[_int] = 1, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, ceil_mode: _bool = False, count_include_pad: _bool = False, layout: _str = 'NCW', out_layout: _Any = None) -> _Value:
        """The largest element of each window of a sequence.

        Constants: pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out_layout.

        Dtypes of data: integers, floating point.

            R.nn.max_pool1d(x, pool_size=2, strides=2)  # (1, 3, 8) -> (1, 3, 4)
        """

    @staticmethod
    def max_pool2d(data: _Argument, pool_size: _int | _Sequence[_int] = 1, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, ceil_mode: _bool = False, count_include_pad: _bool = False, layout: _str = 'NCHW', out_layout: _Any = None) -> _Value:
        """The largest element of each window of an image.

        Constants: pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out_layout.

        Dtypes of data: integers, floating point.

            R.nn.max_pool2d(x, pool_size=2, strides=2)  # (1, 3, 8, 8) -> (1, 3, 4, 4)
        """

    @staticmethod
    def max_pool3d(data: _Argument, pool_size: _int | _Sequence[_int] = 1, strides: _int | _Sequence[_int] = 1, padding: _int | _Sequence[_int] = 0, dilation: _int | _Sequence[_int] = 1, ceil_mode: _bool = False, count_include_pad: _bool = False, layout: _str = 'NCDHW', out_layout: _Any = None) -> _Value:
        """The largest element of each window of a volume.

        Constants: pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out_layout.

        Dtypes of data: integers, floating point.

            R.nn.max_pool3d(x, pool_size=2, strides=2)  # (1, 3, 8, 8, 8) -> (1, 3, 4, 4, 4)
        """

    @staticmethod
    def nll_loss(predictions: _Argument, targets: _Argument, weights: _Any = None, reduction: _str = 'mean', ignore_index: _int | _Sequence[_int] = -100) -> _Value:
        """The negative log-likelihood of target classes under log-probabilities.

        Constants: reduction, ignore_index.

        Dtypes of predictions: floating point.

            R.nn.nll_loss(x, t)  # (2, 5), (2,) int64 -> ()
        """

    @staticmethod
    def pad(data: _Argument, pad_width: _Argument, pad_mode: _str = 'constant', pad_value: _float = 0.0) -> _Value:
        """Data with a margin; `pad_width` has the widths before and after, dimension by dimension.

        Constants: pad_width, pad_mode, pad_value.

            R.nn.pad(x, (0, 0, 1, 1))  # (2, 3) -> (2, 5)
        """

    @staticmethod
    def pixel_shuffle(data: _Argument, upscale_factor: _Argument) -> _Value:
        """Channels moved into space: (n, c * r * r, h, w) to (n, c, h * r, w * r).

        Constants: upscale_factor.

            R.nn.pixel_shuffle(x, 2)  # (1, 8, 3, 3) -> (1, 2, 6, 6)
        """

    @staticmethod
    def prelu(data: _Argument, alpha: _Argument, axis: _int | _Sequence[_int] = 1) -> _Value:
        """Each positive element, and the channel's slope times each negative one.

        Constants: axis.

        Dtypes of data: floating point.

            R.nn.prelu(x, slope)  # (2, 3), (3,) -> (2, 3)
        """

    @staticmethod
    def ragged_attention(queries: _Argument, keys: _Argument, values: _Argument, lengths: _Argument, scale: _Any = None, causal_mask: _Any = None, window_size: _Any = None) -> _Value:
        """Attention of sequences that lie behind each other, whose lengths are given.

        Constants: scale, causal_mask, window_size.

        Dtypes of queries: floating point.

            R.nn.ragged_attention(q, k, v, s)  # (9, 2, 8), (9, 2, 8), (9, 2, 8), (3,) int32 -> (9, 2, 8)
        """

    @staticmethod
    def relu(data: _Argument) -> _Value:
        """The larger of each element and 0.

        Dtypes of data: integers, floating point.

            R.nn.relu(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def relu6(data: _Argument) -> _Value:
        """Each element, clamped to the interval from 0 to 6.

        Dtypes of data: integers, floating point.

            R.nn.relu6(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def rms_norm(data: _Argument, weight: _Argument, axes: _int | _Sequence[_int] = -1, epsilon: _float = 1e-05) -> _Value:
        """Data divided by its root mean square along some axes, then scaled.

        Constants: axes, epsilon.

        Dtypes of data: floating point.

            R.nn.rms_norm(x, w)  # (2, 3), (3,) -> (2, 3)
        """

    @staticmethod
    def rope(x: _Argument, offset: _Any = None, freq_factors: _Any = None, theta: _float = 10000.0, style: _str = 'neox', rotary_dim: _Any = None, scaling: _float = 1.0) -> _Value:
        """Rotary position embedding: pairs of features turned by an angle that grows with position.

        Constants: theta, style, rotary_dim, scaling.

        Dtypes of x: floating point.

            R.nn.rope(x)  # (1, 4, 2, 8) -> (1, 4, 2, 8)
        """

    @staticmethod
    def segment_reduce(data: _Argument, starts: _Argument, mode: _str = 'sum') -> _Value:
        """The "sum", "mean" or "max" of the rows of each segment. `starts` has the first row of each and the number of all rows. No rows have the sum and the mean 0, and the lowest maximum.

        Constants: mode.

        Dtypes of data: floating point.

            R.nn.segment_reduce(x, s, mode="mean")  # (9, 8), (3,) int32 -> (2, 8)
        """

    @staticmethod
    def segment_softmax(data: _Argument, starts: _Argument) -> _Value:
        """The softmax over the rows of each segment, column by column. `starts` has the first row of each and the number of all rows.

        Dtypes of data: floating point.

            R.nn.segment_softmax(x, s)  # (9, 8), (3,) int32 -> (9, 8)
        """

    @staticmethod
    def selu(data: _Argument) -> _Value:
        """The scaled exponential linear unit.

        Dtypes of data: floating point.

            R.nn.selu(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def silu(data: _Argument) -> _Value:
        """Each element times its logistic function: `x * sigmoid(x)`.

        Dtypes of data: floating point.

            R.nn.silu(x)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def softmax(data: _Argument, axis: _int | _Sequence[_int] = -1) -> _Value:
        """The exponentials along an axis, divided by their sum.

        Constants: axis.

        Dtypes of data: floating point.

            R.nn.softmax(x, axis=-1)  # (2, 3) -> (2, 3)
        """

    @staticmethod
    def softplus(data: _Argument, beta: _float = 1.0, threshold: _float = 20.0) -> _Value:
        """The smooth ReLU `log(1 + exp(beta * x)) / beta`; linear above `threshold`.

        Constants: beta, threshold.

        Dtypes of data: floating point.

            R.nn.softplus(x)  # (2, 3) -> (2, 3)
        """

nn: _nn

class _signal:
    """The names R.signal.*"""

    @staticmethod
    def dft(real: _Argument, imag: _Argument, axis: _int | _Sequence[_int] = -1, inverse: _bool = False) -> _Value:
        """The real and the imaginary parts of the discrete Fourier transform along an axis; that of the `inverse` is not divided by the extent.

        Constants: axis, inverse.

        Dtypes of real: floating point.

            R.signal.dft(x, y, inverse=True)  # (2, 8), (2, 8) -> ((2, 8), (2, 8))
        """

signal: _signal

class _vision:
    """The names R.vision.*"""

    @staticmethod
    def all_class_non_max_suppression(boxes: _Argument, scores: _Argument, max_output_boxes_per_class: _Argument, iou_threshold: _Argument, score_threshold: _Argument, output_format: _str = 'onnx') -> _Value:
        """The boxes of each class that overlap no better one by more than `iou_threshold`: (image, class, box) and their number; the other rows are 0. As `tensorflow` has it: (class, box) and the scores per image, and the numbers.

        Constants: output_format.

        Dtypes of boxes: floating point.

            R.vision.all_class_non_max_suppression(b, s, k, o, t)  # (2, 6, 4), (2, 3, 6), () int64, (), () -> ((36, 3) int64, (1,) int64)
        """

    @staticmethod
    def get_valid_counts(data: _Argument, score_threshold: _float = 0.0, id_index: _int | _Sequence[_int] = 0, score_index: _int | _Sequence[_int] = 1) -> _Value:
        """How many boxes have a score above `score_threshold` and a class; these boxes first, the other rows -1; and where they were.

        Constants: score_threshold, id_index, score_index.

            R.vision.get_valid_counts(x, 0.5)  # (2, 10, 6) -> ((2,) int32, (2, 10, 6), (2, 10) int32)
        """

    @staticmethod
    def multibox_transform_loc(cls_pred: _Argument, loc_pred: _Argument, anchor: _Argument, clip: _bool = False, threshold: _float = 0.0, variances: _Any = (1.0, 1.0, 1.0, 1.0), keep_background: _bool = True, apply_softmax: _bool = True) -> _Value:
        """The boxes (ymin, xmin, ymax, xmax) that offsets make of anchors (left, top, right, bottom), and their scores, those below `threshold` 0; `variances` is one number or four.

        Constants: clip, threshold, variances, keep_background, apply_softmax.

        Dtypes of cls_pred: floating point.

            R.vision.multibox_transform_loc(s, x, a)  # (2, 5, 10), (2, 40), (1, 10, 4) -> ((2, 10, 4), (2, 5, 10))
        """

    @staticmethod
    def non_max_suppression(data: _Argument, valid_count: _Argument, indices: _Argument, max_output_size: _int | _Sequence[_int] = -1, iou_threshold: _float = 0.5, force_suppress: _bool = False, top_k: _int | _Sequence[_int] = -1, coord_start: _int | _Sequence[_int] = 2, score_index: _int | _Sequence[_int] = 1, id_index: _int | _Sequence[_int] = 0, return_indices: _bool = True, invalid_to_bottom: _bool = False, soft_nms_sigma: _float = 0.0, score_threshold: _float = 0.0) -> _Value:
        """The boxes among the first `valid_count` of each image that overlap no better one of their class: their `indices`, the others -1, and their number; with `soft_nms_sigma` the boxes before; without `return_indices` the boxes alone.

        Constants: max_output_size, iou_threshold, force_suppress, top_k, coord_start, score_index, id_index, return_indices, invalid_to_bottom, soft_nms_sigma, score_threshold.

            R.vision.non_max_suppression(x, n, i)  # (2, 10, 6), (2,) int32, (2, 10) int32 -> ((2, 10) int32, (2, 1) int32)
        """

    @staticmethod
    def roi_align(data: _Argument, rois: _Argument, pooled_size: _Argument, spatial_scale: _Argument, sample_ratio: _int | _Sequence[_int] = -1, aligned: _bool = False, layout: _str = 'NCHW', mode: _str = 'avg') -> _Value:
        """The mean or the greatest of points in each window of a region, interpolated. Regions are an element large at least, unless they are `aligned`.

        Constants: pooled_size, spatial_scale, sample_ratio, aligned, layout, mode.

        Dtypes of data: floating point.

            R.vision.roi_align(x, r, 7, 1.0)  # (2, 3, 9, 9), (4, 5) -> (4, 3, 7, 7)
        """

    @staticmethod
    def roi_pool(data: _Argument, rois: _Argument, pooled_size: _Argument, spatial_scale: _Argument, layout: _str = 'NCHW') -> _Value:
        """The greatest element in each window of a region, 0 where it has none.

        Constants: pooled_size, spatial_scale, layout.

        Dtypes of data: floating point.

            R.vision.roi_pool(x, r, 7, 1.0)  # (2, 3, 9, 9), (4, 5) -> (4, 3, 7, 7)
        """

vision: _vision

class _vm:
    """The names R.vm.*"""

    @staticmethod
    def alloc_storage(shape: _Argument, runtime_device_index: _Argument, dtype: _Argument, storage_scope: _Any = None) -> _Value:
        """A new piece of memory for a tensor of a shape and dtype."""

    @staticmethod
    def alloc_tensor(storage: _Argument, offset: _Argument, shape: _Argument, dtype: _Argument, runtime_device_index: _Any = None) -> _Value:
        """A tensor at an offset in bytes of a storage."""

    @staticmethod
    def call_tir_dyn(func: _Argument, args: _Argument) -> _Value:
        """A call of a loop function whose scalar arguments are a shape, the last of `args`."""

    @staticmethod
    def kill_object(object: _Argument) -> _Value:
        """The end of the life of a storage or tensor."""

vm: _vm

class Any(_Any):
    """The type of any value, as `R.Object`.

        o: R.Any
    """

    ...

class Callable(_Any):
    """The type of a function.

        f: R.Callable((R.Tensor((4,)),), R.Tensor((4,)))
    """

    def __init__(self, params: _Any = None, ret: _Any = None, purity: _Any = None, derive_func: _Any = None) -> None: ...

def ExternFunc(name: _Any) -> _Value:
    """A function that is registered under a name.

        f = R.ExternFunc("library.f")
    """

class Lengths(_Any):
    """The type of the lengths of sequences that lie behind each other: int32, how many there are, and the number of rows that they have in all. In shapes, `s[i]` is each length, which is within the limits.

        s: R.Lengths("b", "n", at_most=512)
    """

    def __init__(self, sequences: _Any, rows: _Any, at_least: _Any = 0, at_most: _Any = None) -> None: ...

class Object(_Any):
    """The type of any value.

        o: R.Object
    """

    ...

class Prim(_Any):
    """The type of a scalar.

        k: R.Prim("int64")
    """

    def __init__(self, dtype: _Any = None, value: _Any = None) -> None: ...

class Ragged(_Any):
    """The type of a ragged tensor by named dimensions. The first counts sequences, another is as long as an earlier parameter with `R.Lengths` says for each, or as follows from the index along the first: `{"i": "n", "j": "i + 1"}` is a triangle.

        x: R.Ragged({"i": "b", "j": "s[i]", "d": 512}, "float32")
    """

    def __init__(self, dims: _Any, dtype: _Any) -> None: ...

class Shape(_Any):
    """The type of a shape.

        s: R.Shape(["n", 4])
    """

    def __init__(self, values: _Any = None, ndim: _Any = -1) -> None: ...

def ShapeExpr(values: _Any) -> _Value:
    """A shape as a value, as `R.shape`.

        R.ShapeExpr([n, 4])
    """

class Tensor(_Any):
    """The type of a tensor. Extents are integers, symbols, or expressions in strings; what is left out is not known. The virtual device is kept and means nothing else.

        x: R.Tensor(("n", 4), "float32")
    """

    def __init__(self, shape: _Any = None, dtype: _Any = None, vdevice: _Any = None, ndim: _Any = -1) -> None: ...

class Tuple(_Any):
    """The type of a tuple.

        p: R.Tuple(R.Tensor((4,)), R.Tensor((4,)))
    """

    def __init__(self, *fields: _Any) -> None: ...

def TupleGetItem(tuple_value: _Any, index: _Any) -> _Value:
    """A field of a tuple, as `t[0]`.

        R.TupleGetItem(t, 0)
    """

def abs(x: _Argument) -> _Value:
    """The absolute value of each element.

    Dtypes of x: integers, floating point.

        R.abs(x)  # (2, 3) -> (2, 3)
    """

def acos(x: _Argument) -> _Value:
    """The inverse cosine of each element, in radians.

    Dtypes of x: floating point.

        R.acos(x)  # (2, 3) -> (2, 3)
    """

def acosh(x: _Argument) -> _Value:
    """The inverse hyperbolic cosine of each element.

    Dtypes of x: floating point.

        R.acosh(x)  # (2, 3) -> (2, 3)
    """

def add(x1: _Argument, x2: _Argument) -> _Value:
    """The sum `x1 + x2` of each pair of elements; `x + y` means the same.

    Dtypes of x1: integers, floating point.

        R.add(x, y)  # (2, 3), (3,) -> (2, 3)
    """

def arange(start: _Argument, end: _Any = None, step: _int | _Sequence[_int] = 1, dtype: _Any = None) -> _Value:
    """The numbers from `start` (0 unless given) to `end`, without `end`, in steps of `step`.

    Constants: start, end, step, dtype.

        R.arange(0, 6, 2)  # -> (3,) int64
    """

def argmax(x: _Argument, axis: _Any = None, keepdims: _bool = False) -> _Value:
    """The index of the largest element along an axis (of the flattened tensor without one).

    Constants: axis, keepdims.

        R.argmax(x, axis=-1)  # (2, 3) -> (2,) int64
    """

def argmin(x: _Argument, axis: _Any = None, keepdims: _bool = False) -> _Value:
    """The index of the smallest element along an axis (of the flattened tensor without one).

    Constants: axis, keepdims.

        R.argmin(x, axis=-1)  # (2, 3) -> (2,) int64
    """

def argsort(data: _Argument, axis: _int | _Sequence[_int] = -1, descending: _bool = False, dtype: _str = 'int32') -> _Value:
    """The indices of the elements in sorted order.

    Constants: axis, descending, dtype.

        R.argsort(x, axis=-1)  # (2, 3) -> (2, 3) int32
    """

def asin(x: _Argument) -> _Value:
    """The inverse sine of each element, in radians.

    Dtypes of x: floating point.

        R.asin(x)  # (2, 3) -> (2, 3)
    """

def asinh(x: _Argument) -> _Value:
    """The inverse hyperbolic sine of each element.

    Dtypes of x: floating point.

        R.asinh(x)  # (2, 3) -> (2, 3)
    """

def assert_op(condition: _Argument, *format_args: _Argument, format: _str = '') -> _Value:
    """Stops the program with a message unless the condition holds; `format` has a `{}` for each further argument.

    Constants: format.

    Dtypes of condition: bool.

        R.assert_op(c, x, format="x is {}")  # () bool, (2, 3) -> ()
    """

def astype(x: _Argument, dtype: _Argument) -> _Value:
    """The elements converted to another dtype.

    Constants: dtype.

        R.astype(x, "int32")  # (2, 3) -> (2, 3) int32
    """

def atan(x: _Argument) -> _Value:
    """The inverse tangent of each element, in radians.

    Dtypes of x: floating point.

        R.atan(x)  # (2, 3) -> (2, 3)
    """

def atan2(x1: _Argument, x2: _Argument) -> _Value:
    """The angle of the point (x2, x1), in radians, in its quadrant.

    Dtypes of x1: floating point.

        R.atan2(y, x)  # (2, 3), (2, 3) -> (2, 3)
    """

def atanh(x: _Argument) -> _Value:
    """The inverse hyperbolic tangent of each element.

    Dtypes of x: floating point.

        R.atanh(x)  # (2, 3) -> (2, 3)
    """

def bitcast(x: _Argument, dtype: _Argument) -> _Value:
    """The bits of each element as another dtype of as many bits.

    Constants: dtype.

    Dtypes of x: floating point.

        R.bitcast(x, "int32")  # (2, 3) -> (2, 3) int32
    """

def bitwise_and(x1: _Argument, x2: _Argument) -> _Value:
    """The bitwise AND of integers or booleans.

    Dtypes of x1: bool, integers.

        R.bitwise_and(x, y)  # (2, 3) int32, (2, 3) int32 -> (2, 3) int32
    """

def bitwise_not(x: _Argument) -> _Value:
    """The bitwise complement of integers or booleans; `~x` means the same.

    Dtypes of x: bool, integers.

        R.bitwise_not(x)  # (2, 3) int32 -> (2, 3) int32
    """

def bitwise_or(x1: _Argument, x2: _Argument) -> _Value:
    """The bitwise OR of integers or booleans.

    Dtypes of x1: bool, integers.

        R.bitwise_or(x, y)  # (2, 3) int32, (2, 3) int32 -> (2, 3) int32
    """

def bitwise_xor(x1: _Argument, x2: _Argument) -> _Value:
    """The bitwise exclusive OR of integers or booleans.

    Dtypes of x1: bool, integers.

        R.bitwise_xor(x, y)  # (2, 3) int32, (2, 3) int32 -> (2, 3) int32
    """

def broadcast_to(x: _Argument, shape: _Argument) -> _Value:
    """The tensor repeated along its dimensions of extent 1 to a larger shape.

        R.broadcast_to(x, (4, 2, 3))  # (2, 1) -> (4, 2, 3)
    """

def bucketize(input_tensor: _Argument, boundaries: _Argument, out_int32: _bool = False, right: _bool = False) -> _Value:
    """For each element, the index of the interval between sorted boundaries that it is in.

    Constants: out_int32, right.

    Dtypes of input_tensor: integers, floating point.

        R.bucketize(x, boundaries)  # (2, 3), (4,) -> (2, 3) int64
    """

def call_builtin_with_ctx(func: _Any, *args: _Any) -> _Value:
    """A call of a registered function that may have effects.

        R.call_builtin_with_ctx("library.f", x, ty_args=R.Tensor((4,)))
    """

def call_dps_packed(func: _Any, args: _Any, out_ty: _Any, tir_vars: _Any = None) -> _Value:
    """A call of a registered function that writes its result into the last argument.

        R.call_dps_packed("library.f", (x,), out_ty=R.Tensor((4,), "float32"))
    """

def call_inplace_packed(func: _Any, *args: _Any, inplace_indices: _Any) -> _Value:
    """A call of a registered function that overwrites some of its arguments.

        R.call_inplace_packed("library.f", x, inplace_indices=[0], ty_args=R.Tensor((4,)))
    """

def call_packed(name: _Any, *args: _Any) -> _Value:
    """A call of a registered function that may have effects.

        R.call_packed("library.f", x, ty_args=R.Tensor((4,), "float32"))
    """

def call_pure_packed(func: _Any, *args: _Any) -> _Value:
    """A call of a registered function that has no effects.

        R.call_pure_packed("library.f", x, ty_args=R.Tensor((4,), "float32"))
    """

def call_py_func(func: _Any, args: _Any, out_ty: _Any, tir_vars: _Any = None) -> _Value:
    """A call of a registered Python function with its arguments in a tuple.

        R.call_py_func("f", (x,), out_ty=R.Tensor((4,), "float32"))
    """

def call_tir(func: _Any, args: _Any, out_ty: _Any, tir_vars: _Any = None) -> _Value:
    """A call of a loop function: its result is allocated and given to it as the last argument.

        R.call_tir(cls.scale, (x,), out_ty=R.Tensor((n, 4), "float32"))
    """

def call_tir_inplace(func: _Any, args: _Any, inplace_indices: _Any, out_ty: _Any, tir_vars: _Any = None) -> _Value:
    """A call of a loop function that overwrites some of its arguments.

        R.call_tir_inplace(cls.add, (x, y), [0], out_ty=R.Tensor((4,), "float32"))
    """

def call_tir_with_grad(func: _Any, args: _Any, out_ty: _Any, te_grad_name: _Any, te_grad_kwargs: _Any = None, tir_vars: _Any = None) -> _Value:
    """A call of a loop function with the name of its gradient.

        R.call_tir_with_grad(cls.f, (x,), out_ty=R.Tensor((4,)), te_grad_name="f_grad")
    """

def cbrt(x: _Argument) -> _Value:
    """The cube root of each element.

    Dtypes of x: floating point.

        R.cbrt(x)  # (2, 3) -> (2, 3)
    """

def ceil(x: _Argument) -> _Value:
    """The smallest integer that is not below each element.

    Dtypes of x: integers, floating point.

        R.ceil(x)  # (2, 3) -> (2, 3)
    """

def clip(x: _Argument, min: _Argument, max: _Argument) -> _Value:
    """Each element, clamped to the interval from `min` to `max`.

    Constants: min, max.

    Dtypes of x: integers, floating point.

        R.clip(x, 0.0, 1.0)  # (2, 3) -> (2, 3)
    """

def collapse_sum_like(data: _Argument, collapse_target: _Argument) -> _Value:
    """The sums that undo broadcasting to the shape of another tensor.

    Dtypes of data: integers, floating point.

        R.collapse_sum_like(x, y)  # (2, 3), (1, 3) -> (1, 3)
    """

def collapse_sum_to(data: _Argument, shape: _Argument) -> _Value:
    """The sums that undo broadcasting from `shape`, as gradients need them.

    Dtypes of data: integers, floating point.

        R.collapse_sum_to(x, (1, 3))  # (2, 3) -> (1, 3)
    """

def concat(tensors: _Argument, axis: _int | _Sequence[_int] = 0) -> _Value:
    """Tensors joined along an existing axis.

    Constants: axis.

        R.concat((x, y), axis=0)  # (2, 3), (4, 3) -> (6, 3)
    """

def const(value: _Any, dtype: _Any = None, shape: _Any = None) -> _Value:
    """A constant tensor: a number, nested lists, an array, or compressed text with its dtype and shape.

        R.const([1, 2, 3], "float32")
    """

def cos(x: _Argument) -> _Value:
    """The cosine of each element, in radians.

    Dtypes of x: floating point.

        R.cos(x)  # (2, 3) -> (2, 3)
    """

def cosh(x: _Argument) -> _Value:
    """The hyperbolic cosine of each element.

    Dtypes of x: floating point.

        R.cosh(x)  # (2, 3) -> (2, 3)
    """

def cpu(index: _Any = 0) -> _Value:
    """A device of the kind cpu, by its number.

        R.hint_on_device(x, R.cpu(0))
    """

def cuda(index: _Any = 0) -> _Value:
    """A device of the kind cuda, by its number.

        R.hint_on_device(x, R.cuda(0))
    """

def cumlogsumexp(data: _Argument, axis: _Any = None, dtype: _Any = None, exclusive: _bool = False) -> _Value:
    """The logarithm of the running sum of exponentials along an axis, without overflow.

    Constants: axis, dtype, exclusive.

    Dtypes of data: floating point.

        R.cumlogsumexp(x, axis=1)  # (2, 3) -> (2, 3)
    """

def cummax(data: _Argument, axis: _Any = None, dtype: _Any = None, exclusive: _bool = False) -> _Value:
    """The running maximum along an axis (of the flattened tensor without one).

    Constants: axis, dtype, exclusive.

    Dtypes of data: integers, floating point.

        R.cummax(x, axis=1)  # (2, 3) -> (2, 3)
    """

def cummin(data: _Argument, axis: _Any = None, dtype: _Any = None, exclusive: _bool = False) -> _Value:
    """The running minimum along an axis (of the flattened tensor without one).

    Constants: axis, dtype, exclusive.

    Dtypes of data: integers, floating point.

        R.cummin(x, axis=1)  # (2, 3) -> (2, 3)
    """

def cumprod(data: _Argument, axis: _Any = None, dtype: _Any = None, exclusive: _bool = False) -> _Value:
    """The running product along an axis (of the flattened tensor without one).

    Constants: axis, dtype, exclusive.

    Dtypes of data: integers, floating point.

        R.cumprod(x, axis=1)  # (2, 3) -> (2, 3)
    """

def cumsum(data: _Argument, axis: _Any = None, dtype: _Any = None, exclusive: _bool = False) -> _Value:
    """The running sum along an axis (of the flattened tensor without one).

    Constants: axis, dtype, exclusive.

    Dtypes of data: integers, floating point.

        R.cumsum(x, axis=1)  # (2, 3) -> (2, 3)
    """

def dataflow() -> _Context[_Value]:
    """A block of bindings without effects, which passes may reorder and remove.

        with R.dataflow():
    """

def decode_blocks(fields: _Argument, format: _Argument) -> _Value:
    """The matrix, float32, whose rows are stored in blocks of a format of GGUF files: the fields of a block in the order of the file, each (rows, blocks, ...), or whole blocks of bytes.

    Constants: format.

    Dtypes of fields: .

        R.decode_blocks((d, m, qs), format="Q4_1")  # (2, 3) float16, (2, 3) float16, (2, 3, 16) uint8 -> (2, 96)
    """

def dequantize(data: _Argument, scale: _Argument, zero_point: _Argument, axis: _int | _Sequence[_int] = -1, out_dtype: _str = 'float32') -> _Value:
    """Floating-point values of quantized integers: `(data - zero_point) * scale`, with one scale and zero point per index of `axis`, or one of each.

    Constants: axis, out_dtype.

    Dtypes of data: integers.

        R.dequantize(q, scale, zero)  # (2, 3) int8, (3,), (3,) int8 -> (2, 3)
    """

def device(device_type: _Any, index: _Any = 0) -> _Value:
    """A device by its kind and number.

        R.hint_on_device(x, R.device("cuda", 0))
    """

def digamma(x: _Argument) -> _Value:
    """The derivative of the logarithm of the gamma function.

    Dtypes of x: floating point.

        R.digamma(x)  # (2, 3) -> (2, 3)
    """

def divide(x1: _Argument, x2: _Argument) -> _Value:
    """The quotient `x1 / x2`; of integers, rounded toward zero. `x / y` means the same.

    Dtypes of x1: integers, floating point.

        R.divide(x, y)  # (2, 3), (2, 1) -> (2, 3)
    """

def dtype(value: _Any) -> _Value:
    """A dtype as a value.

        R.dtype("float32")
    """

def dynamic_quantize(data: _Argument, group: _Argument, parts: _int | _Sequence[_int] = 1) -> _Value:
    """Rows of numbers as integers, in groups of columns: `127 * data / max(abs(data))` of each group, rounded, its scale, and the sum of its integers times the scale. With two parts, the integers count 127 * 128 steps, and high and low parts of a group follow each other.

    Constants: group, parts.

    Dtypes of data: floating point.

        R.dynamic_quantize(x, group=32)  # (2, 64) -> ((2, 2, 32) int8, (2, 2), (2, 2))
    """

def dynamic_strided_slice(x: _Argument, begin: _Argument, end: _Argument, strides: _Argument) -> _Value:
    """A slice whose bounds are tensors.

        R.dynamic_strided_slice(x, begin, end, strides)  # (4, 5), (2,) int64, (2,) int64, (2,) int64 -> ndim=2
    """

def einsum(operands: _Argument, subscripts: _Argument) -> _Value:
    """The sum of products that an Einstein summation specifies.

    Constants: subscripts.

    Dtypes of operands: integers, floating point.

        R.einsum((x, y), "ik,kj->ij")  # (2, 3), (3, 4) -> (2, 4)
    """

def emit(value: _Any) -> _Value:
    """The value itself, bound to a variable.

        y = R.emit(R.add(x, x))
    """

def emit_match_cast(value: _Any, ty: _Any) -> _Value:
    """The same value with a type that is claimed, and checked at run time where it is not proved; its symbols are bound.

        y = R.emit_match_cast(x, R.Tensor((n, 4), "float32"))
    """

def emit_with_sinfo(op: _Any, args: _Any, ty_args: _Any = None) -> _Value:
    """The call of an operator by its name, with types as arguments.

        y = R.emit_with_sinfo("relax.add", (x, x), (R.Tensor((4,), "float32"),))
    """

def emit_with_ty(op: _Any, args: _Any, ty_args: _Any = None) -> _Value:
    """The call of an operator by its name, with types as arguments.

        y = R.emit_with_ty("relax.add", (x, x), (R.Tensor((4,), "float32"),))
    """

def emit_with_type(op: _Any, args: _Any, ty_args: _Any = None) -> _Value:
    """The call of an operator by its name, with types as arguments.

        y = R.emit_with_type("relax.add", (x, x), (R.Tensor((4,), "float32"),))
    """

def equal(x1: _Argument, x2: _Argument) -> _Value:
    """True where the two elements are equal; `x == y` means the same.

        R.equal(x, y)  # (2, 3), (3,) -> (2, 3) bool
    """

def erf(x: _Argument) -> _Value:
    """The error function of each element.

    Dtypes of x: floating point.

        R.erf(x)  # (2, 3) -> (2, 3)
    """

def erfc(x: _Argument) -> _Value:
    """The complementary error function `1 - erf(x)`, exact for large `x`.

    Dtypes of x: floating point.

        R.erfc(x)  # (2, 3) -> (2, 3)
    """

def erfinv(x: _Argument) -> _Value:
    """The inverse of the error function, on (-1, 1).

    Dtypes of x: floating point.

        R.erfinv(x)  # (2, 3) -> (2, 3)
    """

def ewise_fma(x1: _Argument, x2: _Argument, x3: _Argument) -> _Value:
    """The product of two elements plus a third: `x1 * x2 + x3`.

    Dtypes of x1: integers, floating point.

        R.ewise_fma(x, y, z)  # (2, 3), (2, 3), (2, 3) -> (2, 3)
    """

def exp(x: _Argument) -> _Value:
    """The exponential of each element.

    Dtypes of x: floating point.

        R.exp(x)  # (2, 3) -> (2, 3)
    """

def exp2(x: _Argument) -> _Value:
    """2 to the power of each element.

    Dtypes of x: floating point.

        R.exp2(x)  # (2, 3) -> (2, 3)
    """

def expand_dims(x: _Argument, axis: _Argument) -> _Value:
    """The tensor with dimensions of extent 1 added at the places `axis`.

    Constants: axis.

        R.expand_dims(x, axis=0)  # (2, 3) -> (1, 2, 3)
    """

def expm1(x: _Argument) -> _Value:
    """The exponential of each element minus one, exact for small `x`.

    Dtypes of x: floating point.

        R.expm1(x)  # (2, 3) -> (2, 3)
    """

def eye(n: _Argument, m: _Any = None, k: _int | _Sequence[_int] = 0, dtype: _str = 'float32') -> _Value:
    """A matrix of `n` rows and `m` columns (`n` unless given) with ones on its `k`-th diagonal.

    Constants: n, m, k, dtype.

        R.eye(3)  # -> (3, 3)
    """

def eye_like(x: _Argument, k: _int | _Sequence[_int] = 0, dtype: _Any = None) -> _Value:
    """A matrix of the shape of `x` with ones on its `k`-th diagonal and zeros elsewhere.

    Constants: k, dtype.

        R.eye_like(x, k=1)  # (2, 3) -> (2, 3)
    """

def flatten(x: _Argument) -> _Value:
    """The elements in one dimension.

        R.flatten(x)  # (2, 3) -> (6,)
    """

def flip(data: _Argument, axis: _Argument) -> _Value:
    """The elements in reverse order along one axis.

    Constants: axis.

        R.flip(x, axis=1)  # (2, 3) -> (2, 3)
    """

def floor(x: _Argument) -> _Value:
    """The largest integer that is not above each element.

    Dtypes of x: integers, floating point.

        R.floor(x)  # (2, 3) -> (2, 3)
    """

def floor_divide(x1: _Argument, x2: _Argument) -> _Value:
    """The quotient rounded down; `x // y` means the same.

    Dtypes of x1: integers, floating point.

        R.floor_divide(x, y)  # (2, 3) int32, (2, 3) int32 -> (2, 3) int32
    """

def floor_mod(x1: _Argument, x2: _Argument) -> _Value:
    """The remainder of the division rounded down: it has the sign of `x2`.

    Dtypes of x1: integers, floating point.

        R.floor_mod(x, y)  # (2, 3) int32, (2, 3) int32 -> (2, 3) int32
    """

def full(shape: _Argument, fill_value: _Argument, dtype: _Any = None) -> _Value:
    """A tensor filled with one value.

    Constants: dtype.

        R.full((2, 3), R.const(7.0, "float32"))  # -> (2, 3)
    """

def full_like(x: _Argument, fill_value: _Argument, dtype: _Any = None) -> _Value:
    """A tensor of the shape of `x`, filled with one value.

    Constants: dtype.

        R.full_like(x, R.const(7.0, "float32"))  # (2, 3) -> (2, 3)
    """

def func_attr(attrs: _Any) -> None:
    """Attributes of the function, as a dictionary.

        R.func_attr({"num_input": 1})
    """

def gather_elements(data: _Argument, indices: _Argument, axis: _int | _Sequence[_int] = 0) -> _Value:
    """The elements `data[..., indices[...], ...]` along one axis, one per index.

    Constants: axis.

        R.gather_elements(x, i, axis=1)  # (2, 5), (2, 3) int64 -> (2, 3)
    """

def gather_nd(data: _Argument, indices: _Argument, batch_dims: _int | _Sequence[_int] = 0) -> _Value:
    """The slices of `data` at the places that the rows of `indices` give.

    Constants: batch_dims.

        R.gather_nd(x, i)  # (4, 5), (3, 1) int64 -> (3, 5)
    """

def greater(x1: _Argument, x2: _Argument) -> _Value:
    """True where `x1 > x2`.

        R.greater(x, y)  # (2, 3), (3,) -> (2, 3) bool
    """

def greater_equal(x1: _Argument, x2: _Argument) -> _Value:
    """True where `x1 >= x2`.

        R.greater_equal(x, y)  # (2, 3), (3,) -> (2, 3) bool
    """

def hamming_window(window_size: _Argument, periodic: _bool = True, alpha: _float = 0.54, beta: _float = 0.46, dtype: _str = 'float32') -> _Value:
    """The Hamming window `alpha - beta * cos(2 * pi * i / size)`.

    Constants: window_size, periodic, alpha, beta, dtype.

        R.hamming_window(16)  # -> (16,)
    """

def hint_on_device(data: _Argument, dst_vdevice: _str = 'cpu', memory_scope: _str = 'global') -> _Value:
    """The same value, declared to be on a device.

    Constants: dst_vdevice, memory_scope.

        R.hint_on_device(x, "cpu")  # (2, 3) -> (2, 3)
    """

def index_put(data: _Argument, indices: _Argument, values: _Argument, accumulate: _bool = False) -> _Value:
    """A copy of `data` with `values` at the places that index tensors give.

    Constants: accumulate.

        R.index_put(x, (i, j), v)  # (4, 5), (3,) int64, (3,) int64, (3,) -> (4, 5)
    """

def index_tensor(data: _Argument, indices: _Argument) -> _Value:
    """The elements at the places that index tensors give, one tensor per dimension, as in NumPy's `data[i, j]`.

        R.index_tensor(x, (i, j))  # (4, 5), (3,) int64, (3,) int64 -> (3,)
    """

def invoke_closure(closure: _Argument, args: _Argument) -> _Value:
    """A call of a closure that may have effects."""

def invoke_pure_closure(closure: _Argument, args: _Argument) -> _Value:
    """A call of a closure that has no effects."""

def isfinite(x: _Argument) -> _Value:
    """True where the element is neither infinite nor NaN.

    Dtypes of x: floating point.

        R.isfinite(x)  # (2, 3) -> (2, 3) bool
    """

def isinf(x: _Argument) -> _Value:
    """True where the element is an infinity.

    Dtypes of x: floating point.

        R.isinf(x)  # (2, 3) -> (2, 3) bool
    """

def isnan(x: _Argument) -> _Value:
    """True where the element is NaN.

    Dtypes of x: floating point.

        R.isnan(x)  # (2, 3) -> (2, 3) bool
    """

def layout_transform(x: _Argument, index_map: _Argument, pad_value: _Any = None, axis_separators: _Any = None, input_axis_separators: _Any = None) -> _Value:
    """The elements moved to the places that an index map gives.

    Constants: index_map, pad_value, axis_separators, input_axis_separators.

        R.layout_transform(x, index_map=T.index_map(lambda i, j: (j, i)))  # (2, 3) -> (3, 2)
    """

def left_shift(x1: _Argument, x2: _Argument) -> _Value:
    """The bits of `x1`, shifted left by `x2` places.

    Dtypes of x1: integers.

        R.left_shift(x, y)  # (2, 3) int32, (2, 3) int32 -> (2, 3) int32
    """

def less(x1: _Argument, x2: _Argument) -> _Value:
    """True where `x1 < x2`.

        R.less(x, y)  # (2, 3), (3,) -> (2, 3) bool
    """

def less_equal(x1: _Argument, x2: _Argument) -> _Value:
    """True where `x1 <= x2`.

        R.less_equal(x, y)  # (2, 3), (3,) -> (2, 3) bool
    """

def lgamma(x: _Argument) -> _Value:
    """The logarithm of the absolute value of the gamma function.

    Dtypes of x: floating point.

        R.lgamma(x)  # (2, 3) -> (2, 3)
    """

def linear(data: _Argument, weight: _Argument, bias: _Any = None, out_dtype: _Any = None) -> _Value:
    """The product with a transposed weight, plus a bias: `data @ weight.T + bias`.

    Constants: out_dtype.

    Dtypes of data: integers, floating point.

        R.linear(x, w, b)  # (2, 3), (4, 3), (4,) -> (2, 4)
    """

def log(x: _Argument) -> _Value:
    """The natural logarithm of each element.

    Dtypes of x: floating point.

        R.log(x)  # (2, 3) -> (2, 3)
    """

def log10(x: _Argument) -> _Value:
    """The logarithm to base 10 of each element.

    Dtypes of x: floating point.

        R.log10(x)  # (2, 3) -> (2, 3)
    """

def log1p(x: _Argument) -> _Value:
    """The natural logarithm of `1 + x`, exact for small `x`.

    Dtypes of x: floating point.

        R.log1p(x)  # (2, 3) -> (2, 3)
    """

def log2(x: _Argument) -> _Value:
    """The logarithm to base 2 of each element.

    Dtypes of x: floating point.

        R.log2(x)  # (2, 3) -> (2, 3)
    """

def log_add_exp(x1: _Argument, x2: _Argument) -> _Value:
    """The logarithm of `exp(x1) + exp(x2)`, without overflow.

    Dtypes of x1: floating point.

        R.log_add_exp(x, y)  # (2, 3), (2, 3) -> (2, 3)
    """

def logical_and(x1: _Argument, x2: _Argument) -> _Value:
    """True where both elements are true.

    Dtypes of x1: bool.

        R.logical_and(x, y)  # (2, 3) bool, (2, 3) bool -> (2, 3) bool
    """

def logical_not(x: _Argument) -> _Value:
    """True where the element is false.

    Dtypes of x: bool.

        R.logical_not(x)  # (2, 3) bool -> (2, 3) bool
    """

def logical_or(x1: _Argument, x2: _Argument) -> _Value:
    """True where one of the elements is true, or both.

    Dtypes of x1: bool.

        R.logical_or(x, y)  # (2, 3) bool, (2, 3) bool -> (2, 3) bool
    """

def logical_xor(x1: _Argument, x2: _Argument) -> _Value:
    """True where exactly one of the elements is true.

    Dtypes of x1: bool.

        R.logical_xor(x, y)  # (2, 3) bool, (2, 3) bool -> (2, 3) bool
    """

def macro(function: _Any = None, hygienic: _Any = True) -> _Value:
    """The decorator of a function that stands for its statements, and for the value that it returns, wherever it is called.

        @R.macro
    """

def make_closure(func: _Argument, args: _Argument) -> _Value:
    """A function with its last arguments bound."""

def masked_fill(x: _Argument, mask: _Argument, value: _Argument) -> _Value:
    """The elements of `x`, replaced by `value` where `mask` is true.

    Constants: value.

        R.masked_fill(x, mask, 0.0)  # (2, 3), (2, 3) bool -> (2, 3)
    """

def match_cast(value: _Any, ty: _Any) -> _Value:
    """The same value with a type that is claimed, and checked at run time where it is not proved; its symbols are bound.

        y = R.match_cast(x, R.Tensor((n, 4), "float32"))
    """

def matmul(x1: _Argument, x2: _Argument, out_dtype: _Any = None) -> _Value:
    """The matrix product; leading dimensions broadcast. `x @ y` means the same.

    Constants: out_dtype.

    Dtypes of x1: integers, floating point.

        R.matmul(x, y)  # (2, 3), (3, 4) -> (2, 4)
    """

def max(x: _Argument, axis: _Any = None, keepdims: _bool = False) -> _Value:
    """The largest element along one axis, several, or all.

    Constants: axis, keepdims.

    Dtypes of x: integers, floating point.

        R.max(x, axis=1)  # (2, 3) -> (2,)
    """

def maximum(x1: _Argument, x2: _Argument) -> _Value:
    """The larger of each pair of elements.

    Dtypes of x1: integers, floating point.

        R.maximum(x, y)  # (2, 3), (3,) -> (2, 3)
    """

def mean(x: _Argument, axis: _Any = None, keepdims: _bool = False) -> _Value:
    """The mean along one axis, several, or all.

    Constants: axis, keepdims.

    Dtypes of x: floating point.

        R.mean(x, axis=1, keepdims=True)  # (2, 3) -> (2, 1)
    """

def median(x: _Argument, axis: _Any = None, keepdims: _bool = False) -> _Value:
    """The median, of all or along axes; along one, a tuple of medians and their indices.

    Constants: axis, keepdims.

    Dtypes of x: integers, floating point.

        R.median(x, axis=1)  # (2, 3) -> ((2,), (2,) int64)
    """

def meshgrid(tensors: _Argument, indexing: _str = 'ij') -> _Value:
    """The coordinates of all points of a grid, one tensor per axis.

    Constants: indexing.

        R.meshgrid((x, y))  # (2,), (3,) -> ((2, 3), (2, 3))
    """

def metal(index: _Any = 0) -> _Value:
    """A device of the kind metal, by its number.

        R.hint_on_device(x, R.metal(0))
    """

def min(x: _Argument, axis: _Any = None, keepdims: _bool = False) -> _Value:
    """The smallest element along one axis, several, or all.

    Constants: axis, keepdims.

    Dtypes of x: integers, floating point.

        R.min(x, axis=1)  # (2, 3) -> (2,)
    """

def minimum(x1: _Argument, x2: _Argument) -> _Value:
    """The smaller of each pair of elements.

    Dtypes of x1: integers, floating point.

        R.minimum(x, y)  # (2, 3), (3,) -> (2, 3)
    """

def mod(x1: _Argument, x2: _Argument) -> _Value:
    """The remainder of the division rounded toward zero: it has the sign of `x1`.

    Dtypes of x1: integers, floating point.

        R.mod(x, y)  # (2, 3) int32, (2, 3) int32 -> (2, 3) int32
    """

def multinomial_from_uniform(prob: _Argument, uniform_sample: _Argument, sample_indices: _Argument, dtype: _str = 'int64') -> _Value:
    """For each sample, an index drawn from the row of `prob` that `sample_indices` names, by a uniform number in [0, 1).

    Constants: dtype.

    Dtypes of prob: floating point.

        R.multinomial_from_uniform(p, u, i)  # (2, 5), (3, 1), (3, 1) int64 -> (3, 1) int64
    """

def multiply(x1: _Argument, x2: _Argument) -> _Value:
    """The product `x1 * x2` of each pair of elements; `x * y` means the same.

    Dtypes of x1: integers, floating point.

        R.multiply(x, y)  # (2, 3), (3,) -> (2, 3)
    """

def negative(x: _Argument) -> _Value:
    """The elements with the opposite sign; `-x` means the same.

    Dtypes of x: integers, floating point.

        R.negative(x)  # (2, 3) -> (2, 3)
    """

def nonzero(x: _Argument) -> _Value:
    """The indices of the elements that are not zero, one row per dimension.

        R.nonzero(x)  # (2, 3) -> ndim=2 int64
    """

def not_equal(x1: _Argument, x2: _Argument) -> _Value:
    """True where the two elements differ; `x != y` means the same.

        R.not_equal(x, y)  # (2, 3), (3,) -> (2, 3) bool
    """

def null_value() -> _Value:
    """The value of an argument that is absent.

        R.null_value()  # -> R.Object
    """

def one_hot(indices: _Argument, on_value: _Argument, off_value: _Argument, depth: _Argument, axis: _int | _Sequence[_int] = -1) -> _Value:
    """A new dimension of extent `depth` that is `on_value` at the index, `off_value` elsewhere.

    Constants: depth, axis.

    Dtypes of indices: integers.

        R.one_hot(i, R.prim_value(1.0), R.prim_value(0.0), 5)  # (3,) int64 -> (3, 5)
    """

def ones(shape: _Argument, dtype: _Argument) -> _Value:
    """A tensor of ones.

    Constants: dtype.

        R.ones((2, 3), "float32")  # -> (2, 3)
    """

def ones_like(x: _Argument, dtype: _Any = None) -> _Value:
    """A tensor of ones with the shape and dtype of `x`.

    Constants: dtype.

        R.ones_like(x)  # (2, 3) -> (2, 3)
    """

def opencl(index: _Any = 0) -> _Value:
    """A device of the kind opencl, by its number.

        R.hint_on_device(x, R.opencl(0))
    """

def outer(x1: _Argument, x2: _Argument) -> _Value:
    """All products of an element of one vector and an element of another.

        R.outer(x, y)  # (2,), (3,) -> (2, 3)
    """

def outer_index(count: _Any) -> _Value:
    """The index along the first dimension, of `count` elements, of ragged tensors, in shapes and bounds of slices.

        R.outer_index(n) + 1
    """

def output(*values: _Any) -> None:
    """Ends a dataflow block: these variables are visible after it.

        R.output(y)
    """

def permute_dims(x: _Argument, axes: _Any = None) -> _Value:
    """The dimensions in another order; reversed unless `axes` is given.

    Constants: axes.

        R.permute_dims(x, axes=(0, 2, 1))  # (2, 3, 4) -> (2, 4, 3)
    """

def phase() -> _Value:
    """The end of a phase of a batched program: what follows runs after all that comes before it in every instance. It is a statement of the function that is called from outside.

        R.phase()  # -> ()
    """

def popcount(x: _Argument) -> _Value:
    """The number of bits of each integer that are 1.

    Dtypes of x: integers.

        R.popcount(x)  # (2, 3) int32 -> (2, 3) int32
    """

def power(x1: _Argument, x2: _Argument) -> _Value:
    """`x1` to the power of `x2`; `x ** y` means the same.

    Dtypes of x1: floating point.

        R.power(x, y)  # (2, 3), (3,) -> (2, 3)
    """

def prim_value(value: _Any) -> _Value:
    """A scalar as a value.

        R.prim_value(n + 1)
    """

def print(*values: _Argument, format: _str = '') -> _Value:
    """Prints values while the program runs; `format` has a `{}` for each.

    Constants: format.

        R.print(x, format="x = {}")  # (2, 3) -> ()
    """

def prod(x: _Argument, axis: _Any = None, keepdims: _bool = False) -> _Value:
    """The product along one axis, several, or all.

    Constants: axis, keepdims.

    Dtypes of x: integers, floating point.

        R.prod(x, axis=1)  # (2, 3) -> (2,)
    """

def quantize(data: _Argument, scale: _Argument, zero_point: _Argument, axis: _int | _Sequence[_int] = -1, out_dtype: _str = 'int8') -> _Value:
    """Floating-point values as integers: `round(data / scale) + zero_point`, clipped to the range of `out_dtype`.

    Constants: axis, out_dtype.

    Dtypes of data: floating point.

        R.quantize(x, scale, zero)  # (2, 3), (3,), (3,) int8 -> (2, 3) int8
    """

def quantized_linear(data: _Argument, scale: _Argument, total: _Argument, weight: _Argument, format: _Argument, parts: _int | _Sequence[_int] = 1) -> _Value:
    """The product of rows that `dynamic_quantize` made and the transpose of a matrix in blocks (see `decode_blocks`): integers are multiplied, and their sums scaled, group by group. `parts` is that of the rows, and their groups are those of the format.

    Constants: format, parts.

    Dtypes of data: .

        R.quantized_linear(q, scale, total, (d, qs), format="Q4_0")  # (2, 3, 32) int8, (2, 3), (2, 3), (5, 3) float16, (5, 3, 16) uint8 -> (2, 5)
    """

def reduce_window(x: _Argument, padding: _Argument, window: _Argument, strides: _Any = None, dilation: _Any = None, reduction: _str = 'max') -> _Value:
    """The sum, prod, max or min of sliding windows along all dimensions. `padding` has the widths before all dimensions, then those behind them; negative ones leave elements out.

    Constants: window, strides, dilation, reduction.

    Dtypes of x: integers, floating point.

        R.reduce_window(x, (1, 0, 0, 0), window=(2, 3), strides=(1, 3), reduction="sum")  # (5, 6) -> (5, 2)
    """

def renormalize_top_p_top_k(prob: _Argument, top_p: _Argument, top_k: _Argument) -> _Value:
    """Probabilities of the `top_k` likeliest entries, as many as `top_p` needs, divided by their sum; the others are 0.

    Dtypes of prob: floating point.

        R.renormalize_top_p_top_k(p, top_p, top_k)  # (2, 5), (2, 1), (2, 1) int64 -> (2, 5)
    """

def repeat(data: _Argument, repeats: _Argument, axis: _Any = None) -> _Value:
    """Each element `repeats` times in a row, along one axis or of the flattened tensor.

    Constants: repeats, axis.

        R.repeat(x, 2, axis=1)  # (2, 3) -> (2, 6)
    """

def reshape(x: _Argument, shape: _Argument) -> _Value:
    """The elements in the same order with another shape; one extent may be -1.

        R.reshape(x, (3, 2))  # (2, 3) -> (3, 2)
    """

def reverse_sequence(data: _Argument, seq_lengths: _Argument, seq_axis: _int | _Sequence[_int] = 1, batch_axis: _int | _Sequence[_int] = 0) -> _Value:
    """The first `seq_lengths[b]` elements of each sequence in reverse order.

    Constants: seq_axis, batch_axis.

        R.reverse_sequence(x, lengths)  # (2, 5), (2,) int64 -> (2, 5)
    """

def right_shift(x1: _Argument, x2: _Argument) -> _Value:
    """The bits of `x1`, shifted right by `x2` places; the sign stays.

    Dtypes of x1: integers.

        R.right_shift(x, y)  # (2, 3) int32, (2, 3) int32 -> (2, 3) int32
    """

def rocm(index: _Any = 0) -> _Value:
    """A device of the kind rocm, by its number.

        R.hint_on_device(x, R.rocm(0))
    """

def round(x: _Argument) -> _Value:
    """The nearest integer; halves go to the even neighbour.

    Dtypes of x: integers, floating point.

        R.round(x)  # (2, 3) -> (2, 3)
    """

def rsqrt(x: _Argument) -> _Value:
    """One divided by the square root of each element.

    Dtypes of x: floating point.

        R.rsqrt(x)  # (2, 3) -> (2, 3)
    """

def scatter_elements(data: _Argument, indices: _Argument, updates: _Argument, axis: _int | _Sequence[_int] = 0, reduction: _str = 'update') -> _Value:
    """A copy of `data` with updates at the indices along one axis.

    Constants: axis, reduction.

        R.scatter_elements(x, i, u, axis=1)  # (2, 5), (2, 3) int64, (2, 3) -> (2, 5)
    """

def scatter_nd(data: _Argument, indices: _Argument, updates: _Argument, reduction: _str = 'update') -> _Value:
    """A copy of `data` with updates at the places that the rows of `indices` give.

    Constants: reduction.

        R.scatter_nd(x, i, u)  # (4, 5), (3, 1) int64, (3, 5) -> (4, 5)
    """

def shape(values: _Any) -> _Value:
    """A shape as a value.

        R.shape([n, 4])
    """

def shape_of(x: _Argument) -> _Value:
    """The shape of a tensor as a value.

        R.shape_of(x)  # (2, 3) -> R.Shape([2, 3])
    """

def shape_to_tensor(shape: _Argument) -> _Value:
    """The extents of a shape as an int64 tensor.

        R.shape_to_tensor(R.shape([2, 3]))  # -> (2,) int64
    """

def sigmoid(x: _Argument) -> _Value:
    """The logistic function `1 / (1 + exp(-x))` of each element.

    Dtypes of x: floating point.

        R.sigmoid(x)  # (2, 3) -> (2, 3)
    """

def sign(x: _Argument) -> _Value:
    """-1, 0 or 1, as each element is negative, zero or positive.

    Dtypes of x: integers, floating point.

        R.sign(x)  # (2, 3) -> (2, 3)
    """

def sin(x: _Argument) -> _Value:
    """The sine of each element, in radians.

    Dtypes of x: floating point.

        R.sin(x)  # (2, 3) -> (2, 3)
    """

def sinh(x: _Argument) -> _Value:
    """The hyperbolic sine of each element.

    Dtypes of x: floating point.

        R.sinh(x)  # (2, 3) -> (2, 3)
    """

def size(x: _Argument) -> _Value:
    """The number of elements.

        R.size(x)  # (2, 3) -> () int64
    """

def slice_scatter(input_tensor: _Argument, src: _Argument, start: _Argument, end: _Argument, step: _int | _Sequence[_int] = 1, axis: _int | _Sequence[_int] = 0) -> _Value:
    """A copy of `input_tensor` with `src` in place of a slice along one axis.

    Constants: start, end, step, axis.

        R.slice_scatter(x, y, 0, 4, step=2)  # (5, 3), (2, 3) -> (5, 3)
    """

def softmax_with_temperature(logits: _Argument, temperature: _Argument) -> _Value:
    """The softmax of each row of logits divided by its temperature.

    Dtypes of logits: floating point.

        R.softmax_with_temperature(x, t)  # (2, 5), (2, 1) -> (2, 5)
    """

def sort(x: _Argument, axis: _int | _Sequence[_int] = -1, descending: _bool = False) -> _Value:
    """The elements in ascending order along an axis, or descending.

    Constants: axis, descending.

        R.sort(x, axis=-1)  # (2, 3) -> (2, 3)
    """

def split(x: _Argument, indices_or_sections: _Argument, axis: _int | _Sequence[_int] = 0) -> _Value:
    """A tuple of parts along an axis: so many equal ones, or cut at the given places.

    Constants: indices_or_sections, axis.

        R.split(x, 2, axis=1)  # (2, 6) -> ((2, 3), (2, 3))
    """

def sqrt(x: _Argument) -> _Value:
    """The square root of each element.

    Dtypes of x: floating point.

        R.sqrt(x)  # (2, 3) -> (2, 3)
    """

def square(x: _Argument) -> _Value:
    """Each element times itself.

    Dtypes of x: integers, floating point.

        R.square(x)  # (2, 3) -> (2, 3)
    """

def squeeze(x: _Argument, axis: _Any = None) -> _Value:
    """The tensor without the given dimensions of extent 1; without all of them unless given.

    Constants: axis.

        R.squeeze(x, axis=1)  # (2, 1, 3) -> (2, 3)
    """

def stack(tensors: _Argument, axis: _int | _Sequence[_int] = 0) -> _Value:
    """Tensors of one shape joined along a new axis.

    Constants: axis.

        R.stack((x, y), axis=0)  # (2, 3), (2, 3) -> (2, 2, 3)
    """

def std(x: _Argument, axis: _Any = None, keepdims: _bool = False) -> _Value:
    """The standard deviation along one axis, several, or all (divided by the count).

    Constants: axis, keepdims.

    Dtypes of x: floating point.

        R.std(x, axis=1)  # (2, 3) -> (2,)
    """

def str(value: _Any) -> _Value:
    """A string as a value.

        R.str("message")
    """

def strided_slice(x: _Argument, axes: _Argument, begin: _Argument, end: _Argument, strides: _Any = None, assume_inbound: _bool = False) -> _Value:
    """The elements from `begin` to `end`, without `end`, in steps, along some axes.

    Constants: axes, begin, end, strides, assume_inbound.

        R.strided_slice(x, axes=[0], begin=[1], end=[3])  # (5, 3) -> (2, 3)
    """

def subtract(x1: _Argument, x2: _Argument) -> _Value:
    """The difference `x1 - x2` of each pair of elements; `x - y` means the same.

    Dtypes of x1: integers, floating point.

        R.subtract(x, y)  # (2, 3), (3,) -> (2, 3)
    """

def sum(x: _Argument, axis: _Any = None, keepdims: _bool = False) -> _Value:
    """The sum along one axis, several, or all.

    Constants: axis, keepdims.

    Dtypes of x: integers, floating point.

        R.sum(x, axis=1)  # (2, 3) -> (2,)
    """

def take(x: _Argument, indices: _Argument, axis: _Any = None, mode: _str = 'fast') -> _Value:
    """The elements at `indices` along an axis (of the flattened tensor without one).

    Constants: axis, mode.

        R.take(x, i, axis=0)  # (5, 3), (2,) int64 -> (2, 3)
    """

def tan(x: _Argument) -> _Value:
    """The tangent of each element, in radians.

    Dtypes of x: floating point.

        R.tan(x)  # (2, 3) -> (2, 3)
    """

def tanh(x: _Argument) -> _Value:
    """The hyperbolic tangent of each element.

    Dtypes of x: floating point.

        R.tanh(x)  # (2, 3) -> (2, 3)
    """

def tensor_to_shape(x: _Argument) -> _Value:
    """The elements of an int64 tensor as a shape.

    Dtypes of x: integers.

        R.tensor_to_shape(x)  # (2,) int64 -> R.Shape(ndim=2)
    """

def tile(data: _Argument, repeats: _Argument) -> _Value:
    """The whole tensor repeated along each dimension.

    Constants: repeats.

        R.tile(x, (2, 1))  # (2, 3) -> (4, 3)
    """

def to_vdevice(data: _Argument, dst_vdevice: _str = 'cpu') -> _Value:
    """The same value, moved to a device.

    Constants: dst_vdevice.

        R.to_vdevice(x, "cpu")  # (2, 3) -> (2, 3)
    """

def topk(data: _Argument, k: _int | _Sequence[_int] = 1, axis: _int | _Sequence[_int] = -1, ret_type: _str = 'both', largest: _bool = True, dtype: _str = 'int32') -> _Value:
    """The `k` largest elements along an axis (all of fewer), and their indices; or one of the two.

    Constants: k, axis, ret_type, largest, dtype.

        R.topk(x, k=2)  # (2, 5) -> ((2, 2), (2, 2) int32)
    """

def tril(x: _Argument, k: _int | _Sequence[_int] = 0) -> _Value:
    """The lower triangle of each matrix up to the `k`-th diagonal, zeros above it.

    Constants: k.

        R.tril(x)  # (3, 3) -> (3, 3)
    """

def triu(x: _Argument, k: _int | _Sequence[_int] = 0) -> _Value:
    """The upper triangle of each matrix from the `k`-th diagonal, zeros below it.

    Constants: k.

        R.triu(x, k=1)  # (3, 3) -> (3, 3)
    """

def trunc(x: _Argument) -> _Value:
    """Each element rounded toward zero.

    Dtypes of x: integers, floating point.

        R.trunc(x)  # (2, 3) -> (2, 3)
    """

def tuple(*fields: _Any) -> _Value:
    """A tuple; `(x, y)` means the same.

        R.tuple(x, y)
    """

def unique(x: _Argument, sorted: _bool = True, return_index: _bool = False, return_inverse: _bool = False, return_counts: _bool = False, axis: _Any = None) -> _Value:
    """The distinct elements, and on request their indices, inverse indices and counts.

    Constants: sorted, return_index, return_inverse, return_counts, axis.

        R.unique(x)  # (6,) -> ndim=1
    """

def variance(x: _Argument, axis: _Any = None, keepdims: _bool = False) -> _Value:
    """The variance along one axis, several, or all (divided by the count).

    Constants: axis, keepdims.

    Dtypes of x: floating point.

        R.variance(x, axis=1)  # (2, 3) -> (2,)
    """

def vulkan(index: _Any = 0) -> _Value:
    """A device of the kind vulkan, by its number.

        R.hint_on_device(x, R.vulkan(0))
    """

def where(condition: _Argument, x1: _Argument, x2: _Argument) -> _Value:
    """The element of `x1` where the condition is true, that of `x2` elsewhere.

    Dtypes of condition: bool.

        R.where(condition, x, y)  # (2, 3) bool, (2, 3), (3,) -> (2, 3)
    """

def wrap_param(data: _Argument, dtype: _str = 'float32') -> _Value:
    """A parameter converted to another dtype.

    Constants: dtype.

        R.wrap_param(x, "float16")  # (2, 3) -> (2, 3) float16
    """

def zeros(shape: _Argument, dtype: _Argument) -> _Value:
    """A tensor of zeros.

    Constants: dtype.

        R.zeros((2, 3), "float32")  # -> (2, 3)
    """

def zeros_like(x: _Argument, dtype: _Any = None) -> _Value:
    """A tensor of zeros with the shape and dtype of `x`.

    Constants: dtype.

        R.zeros_like(x)  # (2, 3) -> (2, 3)
    """
