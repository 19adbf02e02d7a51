"""Loop functions over sequences and matrices of different sizes, as programs to test, schedule and
measure: the workloads of CoRa (MLSys 2022), section 7. Those of attention are templates, too, for
other numbers of heads and of features of a head."""

from __future__ import annotations

from string import Template

SCORES_OF = Template('''
@T.prim_func
def scores(s_: T.handle, o_: T.handle, a_: T.handle, q_: T.handle, k_: T.handle, out_: T.handle):
    b, t, u = T.int64(), T.int64(), T.int64()
    s = T.index_function(s_, (b,), "int64", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    a = T.index_function(
        a_, (b + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=u), T.prefix_sums(lambda i: s[i] * s[i])])
    Q = T.ragged_buffer(q_, {"i": b, "j": "s[i]", "h": $heads, "e": $features}, "float32", starts=o)
    K = T.ragged_buffer(k_, {"i": b, "j": "s[i]", "h": $heads, "e": $features}, "float32", starts=o)
    S = T.ragged_buffer(out_, {"i": b, "h": $heads, "j": "s[i]", "l": "s[i]"}, "float32", starts=a)
    for i, h in T.grid(b, $heads):
        for j, l, e in T.grid(s[i], s[i], $features):
            with T.sblock("S"):
                vi, vh = T.axis.remap("SS", [i, h])
                vj = T.axis.spatial(s[vi], j)
                vl = T.axis.spatial(s[vi], l)
                ve = T.axis.reduce($features, e)
                with T.init():
                    S[vi, vh, vj, vl] = T.float32(0)
                S[vi, vh, vj, vl] += Q[vi, vj, vh, ve] * K[vi, vl, vh, ve]
''')
"""Products of queries and keys of each sequence."""
SCORES = SCORES_OF.substitute(heads=2, features=4)

SOFTMAX_OF = Template('''
@T.prim_func
def softmax(
    s_: T.handle, o_: T.handle, a_: T.handle, x_: T.handle, y_: T.handle, t: T.int64,
):
    b, u = T.int64(), T.int64()
    s = T.index_function(s_, (b,), "int64", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    a = T.index_function(
        a_, (b + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=u), T.prefix_sums(lambda i: s[i] * s[i])])
    X = T.ragged_buffer(x_, {"i": b, "h": $heads, "j": "s[i]", "l": "s[i]"}, "float32", starts=a)
    Y = T.ragged_buffer(y_, {"i": b, "h": $heads, "j": "s[i]", "l": "s[i]"}, "float32", starts=a)
    M = T.alloc_buffer((t, $heads), "float32")
    Z = T.alloc_buffer((t, $heads), "float32")
    for i, h in T.grid(b, $heads):
        for j, l in T.grid(s[i], s[i]):
            with T.sblock("M"):
                vi, vh = T.axis.remap("SS", [i, h])
                vj = T.axis.spatial(s[vi], j)
                vl = T.axis.reduce(s[vi], l)
                with T.init():
                    M[o[vi] + vj, vh] = T.float32("-inf")
                M[o[vi] + vj, vh] = T.max(M[o[vi] + vj, vh], X[vi, vh, vj, vl])
    for i, h in T.grid(b, $heads):
        for j, l in T.grid(s[i], s[i]):
            with T.sblock("Z"):
                vi, vh = T.axis.remap("SS", [i, h])
                vj = T.axis.spatial(s[vi], j)
                vl = T.axis.reduce(s[vi], l)
                with T.init():
                    Z[o[vi] + vj, vh] = T.float32(0)
                Z[o[vi] + vj, vh] += T.exp(X[vi, vh, vj, vl] - M[o[vi] + vj, vh])
    for i, h in T.grid(b, $heads):
        for j, l in T.grid(s[i], s[i]):
            with T.sblock("Y"):
                vi, vh = T.axis.remap("SS", [i, h])
                vj = T.axis.spatial(s[vi], j)
                vl = T.axis.spatial(s[vi], l)
                Y[vi, vh, vj, vl] = (
                    T.exp(X[vi, vh, vj, vl] - M[o[vi] + vj, vh]) / Z[o[vi] + vj, vh])
''')
"""The softmax of each row of the scores."""
SOFTMAX = SOFTMAX_OF.substitute(heads=2, features=4)

MIX_OF = Template('''
@T.prim_func
def mix(s_: T.handle, o_: T.handle, a_: T.handle, w_: T.handle, v_: T.handle, out_: T.handle):
    b, t, u = T.int64(), T.int64(), T.int64()
    s = T.index_function(s_, (b,), "int64", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])])
    a = T.index_function(
        a_, (b + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=u), T.prefix_sums(lambda i: s[i] * s[i])])
    W = T.ragged_buffer(w_, {"i": b, "h": $heads, "j": "s[i]", "l": "s[i]"}, "float32", starts=a)
    V = T.ragged_buffer(v_, {"i": b, "j": "s[i]", "h": $heads, "e": $features}, "float32", starts=o)
    O = T.ragged_buffer(
        out_, {"i": b, "j": "s[i]", "h": $heads, "e": $features}, "float32", starts=o)
    for i, h in T.grid(b, $heads):
        for j, e, l in T.grid(s[i], $features, s[i]):
            with T.sblock("O"):
                vi, vh = T.axis.remap("SS", [i, h])
                vj = T.axis.spatial(s[vi], j)
                ve = T.axis.spatial($features, e)
                vl = T.axis.reduce(s[vi], l)
                with T.init():
                    O[vi, vj, vh, ve] = T.float32(0)
                O[vi, vj, vh, ve] += W[vi, vh, vj, vl] * V[vi, vl, vh, ve]
''')
"""Sums of the values of each sequence, weighted by the scores."""
MIX = MIX_OF.substitute(heads=2, features=4)

VGEMM = '''
@T.prim_func
def vgemm(
    m_: T.handle, n_: T.handle, k_: T.handle, x_: T.handle, y_: T.handle, z_: T.handle,
    a_: T.handle, b_: T.handle, c_: T.handle,
):
    g, t, u, v = T.int64(), T.int64(), T.int64(), T.int64()
    m = T.index_function(m_, (g,), "int64", facts=[T.range(0, 4097)])
    n = T.index_function(n_, (g,), "int64", facts=[T.range(0, 4097)])
    k = T.index_function(k_, (g,), "int64", facts=[T.range(0, 4097)])
    x = T.index_function(
        x_, (g + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: m[i] * k[i])])
    y = T.index_function(
        y_, (g + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=u), T.prefix_sums(lambda i: k[i] * n[i])])
    z = T.index_function(
        z_, (g + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=v), T.prefix_sums(lambda i: m[i] * n[i])])
    A = T.ragged_buffer(a_, {"i": g, "r": "m[i]", "k": "k[i]"}, "float32", starts=x)
    B = T.ragged_buffer(b_, {"i": g, "k": "k[i]", "c": "n[i]"}, "float32", starts=y)
    C = T.ragged_buffer(c_, {"i": g, "r": "m[i]", "c": "n[i]"}, "float32", starts=z)
    for i in range(g):
        for r, c, l in T.grid(m[i], n[i], k[i]):
            with T.sblock("C"):
                vi = T.axis.spatial(g, i)
                vr = T.axis.spatial(m[vi], r)
                vc = T.axis.spatial(n[vi], c)
                vl = T.axis.reduce(k[vi], l)
                with T.init():
                    C[vi, vr, vc] = T.float32(0)
                C[vi, vr, vc] += A[vi, vr, vl] * B[vi, vl, vc]
'''
"""A batch of products of matrices, each with a size of its own, behind each other."""

TRMM = '''
@T.prim_func
def trmm(A: T.Buffer(("n", "n"), "float32"), B: T.Buffer(("n", "m"), "float32"),
         C: T.Buffer(("n", "m"), "float32")):
    for i, j in T.grid(n, m):
        for k in range(i + 1):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                vk = T.axis.reduce(vi + 1, k)
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] += A[vi, vk] * B[vk, vj]
'''
"""The product of a lower triangular matrix with another one: half of the terms are not there."""

TRIANGULAR_ADD = '''
@T.prim_func
def triangular_add(A: T.Buffer(("n", "n"), "float32"), B: T.Buffer(("n", "n"), "float32"),
                   C: T.Buffer(("n", "n"), "float32")):
    for i in range(n):
        for j in range(i + 1):
            with T.sblock("C"):
                vi = T.axis.spatial(n, i)
                vj = T.axis.spatial(vi + 1, j)
                C[vi, vj] = A[vi, vj] + B[vi, vj]
'''
"""The sum of two lower triangular matrices, on the elements of the triangle alone."""

NESTED = '''
@T.prim_func
def nested(
    s_: T.handle, o_: T.handle, t_: T.handle, p_: T.handle, a_: T.handle, x_: T.handle,
    y_: T.handle,
):
    b, n, m, u = T.int64(), T.int64(), T.int64(), T.int64()
    s = T.index_function(s_, (b,), "int64", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=n), T.prefix_sums(lambda i: s[i])])
    t = T.ragged_buffer(
        t_, {"i": b, "j": "s[i]"}, "int64", starts=o, facts=[T.range(0, 513)])
    p = T.index_function(
        p_, (n + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=m), T.prefix_sums(lambda f: t[f])])
    a = T.index_function(
        a_, (n + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=u), T.prefix_sums(lambda f: t[f] * t[f])])
    X = T.ragged_buffer(
        x_, {"i": b, "j": "s[i]", "k": "t[i, j]", "d": 4}, "float32", starts=(o, p))
    Y = T.ragged_buffer(
        y_, {"i": b, "j": "s[i]", "k": "t[i, j]", "l": "t[i, j]"}, "float32", starts=(o, a))
    for i in range(b):
        for j in range(s[i]):
            for k, l, d in T.grid(t[i, j], t[i, j], 4):
                with T.sblock("Y"):
                    vi = T.axis.spatial(b, i)
                    vj = T.axis.spatial(s[vi], j)
                    vk = T.axis.spatial(t[vi, vj], k)
                    vl = T.axis.spatial(t[vi, vj], l)
                    vd = T.axis.reduce(4, d)
                    with T.init():
                        Y[vi, vj, vk, vl] = T.float32(0)
                    Y[vi, vj, vk, vl] += X[vi, vj, vk, vd] * X[vi, vj, vl, vd]
'''
"""Products of the words of each sentence of documents: two levels of sequences."""
