"""The policies that choose batches, in machine code: schedules of graphs whose nodes have a type.

`tests/batching/choosers.py` has them in Python, which the tests compare with. Ratios are compared
as products of integers.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.lowlevel import Array, Byte, Int, Record, Word, inlined, low_level

AGENDA, RATIO, AUTOMATON, PART = 0, 1, 2, 3
"""Choices of a type: the smallest mean depth, the largest part of the frontier, a table, and the
largest part of all its nodes that are left."""
BY_NUMBER, MOST_FIRST, BY_COUNT = 0, 1, 2
"""Encodings of a table's states: by number, with the type of most ready nodes in front, by falling
number of ready nodes."""


class Run(Record):
    """An execution. Arrays over (nodes, kinds) are row-major; `ahead` is over (nodes, lanes), which
    are kinds, and as many more as make a multiple of four. most: the batches from which on a
    schedule is of no use. `critical`: 1 to choose among the types that lose nothing, where there
    are such. A table is a tree: trie[s * kinds + t] is the tree's node after `s` for a further type
    `t`, action[s] the type to run there; -1 for none."""

    nodes: Word
    kinds: Word
    lanes: Word
    most: Word
    policy: Word
    critical: Word
    encoding: Word
    type_of: Array[Int]
    starts: Array[Word]
    reads: Array[Int]
    succ_starts: Array[Word]
    readers: Array[Int]
    alone: Array[Int]
    missing: Array[Int]
    following: Array[Int]
    first: Array[Int]
    last: Array[Int]
    ready: Array[Word]
    order: Array[Int]
    batch_types: Array[Int]
    batch_ends: Array[Word]
    depth: Array[Int]
    depths_left: Array[Word]
    left: Array[Word]
    ahead: Array[Int]
    rank_starts: Array[Word]
    rank_left: Array[Int]
    rank_ready: Array[Int]
    top: Array[Word]
    before: Array[Byte]
    related: Array[Byte]
    waits: Array[Int]
    frontier: Array[Word]
    stack: Array[Word]
    types: Array[Word]
    trie: Array[Int]
    action: Array[Int]


@inlined
def raise_to(here: Array[Int], there: Array[Int], lanes: Word) -> None:
    """Raise so many numbers, a multiple of four, to others where these are larger."""
    for part in range(lanes // 4):
        at = 4 * part
        # All are read before any is written: one vector, whether they are the same memory or not.
        a = there[at] if there[at] > here[at] else here[at]
        b = there[at + 1] if there[at + 1] > here[at + 1] else here[at + 1]
        c = there[at + 2] if there[at + 2] > here[at + 2] else here[at + 2]
        d = there[at + 3] if there[at + 3] > here[at + 3] else here[at + 3]
        here[at] = a
        here[at + 1] = b
        here[at + 2] = c
        here[at + 3] = d


@low_level
def batch_paths(run: Run) -> Word:
    """Count the nodes of each type ahead of each node, on the path that has most of them, and the
    nodes by rank. Return the bound."""
    kinds = run.kinds
    lanes = run.lanes
    for back in range(run.nodes):
        node = run.nodes - 1 - back
        kind = 0 + run.type_of[node]
        here = Array[Int](Word(run.ahead) + 4 * node * lanes)
        at = run.succ_starts[node]
        while at < run.succ_starts[node + 1]:
            raise_to(here, Array[Int](Word(run.ahead) + 4 * run.readers[at] * lanes), lanes)
            at += 1
        here[kind] = here[kind] + 1
        if here[kind] > run.top[kind]:
            run.top[kind] = here[kind]
    bound = 0
    run.rank_starts[0] = 0
    for kind in range(kinds):
        run.rank_starts[kind + 1] = run.rank_starts[kind] + run.top[kind] + 1
        if run.alone[kind] == 0:
            bound += run.top[kind]
    for node in range(run.nodes):
        kind = 0 + run.type_of[node]
        if run.alone[kind] != 0:
            bound += 1
        at = run.rank_starts[kind] + run.ahead[node * lanes + kind]
        run.rank_left[at] = run.rank_left[at] + 1
    return bound


@low_level
def batch_frontiers(run: Run) -> None:
    """Count what each node waits for, for its own type, and on paths between nodes of a type for
    that type."""
    kinds = run.kinds
    for node in range(run.nodes):
        own = 0 + run.type_of[node]
        for kind in range(kinds):
            reached = 0
            waiting = 0
            at = run.starts[node]
            while at < run.starts[node + 1]:
                source = 0 + run.reads[at]
                if run.before[source * kinds + kind] != 0 or run.type_of[source] == kind:
                    reached = 1
                waiting += run.related[source * kinds + kind]
                at += 1
            here = node * kinds + kind
            run.before[here] = reached
            if own == kind or (reached == 1 and run.ahead[node * run.lanes + kind] > 0):
                run.related[here] = 1
                run.waits[here] = waiting
                if own == kind and waiting == 0:
                    run.frontier[kind] = run.frontier[kind] + 1


@low_level
def batch_depths(run: Run) -> None:
    """Add up depths by type."""
    for node in range(run.nodes):
        deep = 0
        at = run.starts[node]
        while at < run.starts[node + 1]:
            below = run.depth[run.reads[at]] + 1
            if below > deep:
                deep = below
            at += 1
        run.depth[node] = deep
        kind = 0 + run.type_of[node]
        run.depths_left[kind] = run.depths_left[kind] + deep


@low_level
def batch_ready(run: Run, node: Word) -> None:
    """Append a node to the ready ones of its type."""
    kind = 0 + run.type_of[node]
    run.following[node] = -1
    if run.ready[kind] == 0:
        run.first[kind] = node
    else:
        run.following[run.last[kind]] = node
    run.last[kind] = node
    run.ready[kind] = run.ready[kind] + 1
    if run.critical != 0:
        at = run.rank_starts[kind] + run.ahead[node * run.lanes + kind]
        run.rank_ready[at] = run.rank_ready[at] + 1


@low_level
def batch_cleared(run: Run, node: Word) -> None:
    """Take a node that has run off the frontiers that wait for its type."""
    kinds = run.kinds
    kind = 0 + run.type_of[node]
    run.frontier[kind] = run.frontier[kind] - 1
    run.stack[0] = node
    high = 1
    while high > 0:
        high = high - 1
        source = run.stack[high]
        at = run.succ_starts[source]
        while at < run.succ_starts[source + 1]:
            reader = 0 + run.readers[at]
            here = reader * kinds + kind
            if run.related[here] != 0:
                run.waits[here] = run.waits[here] - 1
                if run.waits[here] == 0:
                    if run.type_of[reader] == kind:
                        run.frontier[kind] = run.frontier[kind] + 1
                    else:
                        run.stack[high] = reader
                        high += 1
            at += 1


@low_level
def batch_candidates(run: Run) -> Word:
    """Write the types to choose from, and return how many they are."""
    count = 0
    if run.critical != 0:
        for kind in range(run.kinds):
            if run.ready[kind] > 0:
                at = run.rank_starts[kind] + run.top[kind]
                if run.rank_ready[at] == run.rank_left[at]:
                    run.types[count] = kind
                    count += 1
    if count == 0:
        for kind in range(run.kinds):
            if run.ready[kind] > 0:
                run.types[count] = kind
                count += 1
    return count


@low_level
def batch_sorted(run: Run, count: Word) -> None:
    """Sort the types by falling number of ready nodes; equal ones stay as they are."""
    for number in range(count):
        kind = run.types[number]
        at = 0 + number
        while at > 0 and run.ready[run.types[at - 1]] < run.ready[kind]:
            run.types[at] = run.types[at - 1]
            at = at - 1
        run.types[at] = kind


@low_level
def batch_looked_up(run: Run, count: Word) -> Word:
    """Return the type that the table has for the state, else that of most ready nodes."""
    most = run.types[0]
    for number in range(count):
        kind = run.types[number]
        if run.ready[kind] > run.ready[most]:
            most = kind
    if run.encoding == BY_COUNT:
        batch_sorted(run, count)
    state = 0
    if run.encoding == MOST_FIRST:
        state = 0 + run.trie[most]
    for number in range(count):
        if state >= 0:
            state = 0 + run.trie[state * run.kinds + run.types[number]]
    if state >= 0 and run.action[state] >= 0:
        return run.action[state]
    return most


@low_level
def batch_chosen(run: Run) -> Word:
    """Return the type of the next batch."""
    count = batch_candidates(run)
    if run.policy == AUTOMATON:
        return batch_looked_up(run, count)
    best = run.types[0]
    for number in range(count):
        kind = run.types[number]
        if run.policy == PART:
            one = run.ready[kind] * run.left[best]
            other = run.ready[best] * run.left[kind]
            if one > other or (one == other and run.ready[kind] > run.ready[best]):
                best = kind
        elif run.policy == AGENDA:
            if run.depths_left[kind] * run.left[best] < run.depths_left[best] * run.left[kind]:
                best = kind
        else:
            one = run.ready[kind] * run.frontier[best]
            other = run.ready[best] * run.frontier[kind]
            if one > other or (one == other and run.ready[kind] > run.ready[best]):
                best = kind
    return best


@low_level
def batch_ran(run: Run, kind: Word, begin: Word, end: Word) -> None:
    """Take note that the nodes order[begin:end] of a type have run."""
    run.left[kind] = run.left[kind] - (end - begin)
    at = 0 + begin
    while at < end:
        node = 0 + run.order[at]
        if run.policy == AGENDA:
            run.depths_left[kind] = run.depths_left[kind] - run.depth[node]
        if run.policy == RATIO:
            batch_cleared(run, node)
        if run.critical != 0:
            rank = run.rank_starts[kind] + run.ahead[node * run.lanes + kind]
            run.rank_left[rank] = run.rank_left[rank] - 1
            run.rank_ready[rank] = run.rank_ready[rank] - 1
        edge = run.succ_starts[node]
        while edge < run.succ_starts[node + 1]:
            reader = 0 + run.readers[edge]
            run.missing[reader] = run.missing[reader] - 1
            if run.missing[reader] == 0:
                batch_ready(run, reader)
            edge += 1
        at += 1
    while run.top[kind] > 0 and run.rank_left[run.rank_starts[kind] + run.top[kind]] == 0:
        run.top[kind] = run.top[kind] - 1


@low_level
def batch_schedule(run: Run) -> Word:
    """Run all nodes, write the batches, and return how many they are: `most` where there are as
    many before all nodes ran."""
    if run.policy == AGENDA:
        batch_depths(run)
    if run.critical != 0 or run.policy == RATIO:
        batch_paths(run)
    if run.policy == RATIO:
        batch_frontiers(run)
    for node in range(run.nodes):
        kind = 0 + run.type_of[node]
        run.left[kind] = run.left[kind] + 1
        run.missing[node] = run.starts[node + 1] - run.starts[node]
        if run.missing[node] == 0:
            batch_ready(run, node)
    done = 0
    batches = 0
    while done < run.nodes and batches < run.most:
        chosen = -1
        for kind in range(run.kinds):
            if chosen < 0 and run.alone[kind] != 0 and run.ready[kind] > 0:
                chosen = kind
        if chosen < 0:
            chosen = batch_chosen(run)
        count = 1 if run.alone[chosen] != 0 else run.ready[chosen]
        node = 0 + run.first[chosen]
        for number in range(count):
            run.order[done + number] = node
            node = 0 + run.following[node]
        run.first[chosen] = node
        run.ready[chosen] = run.ready[chosen] - count
        batch_ran(run, chosen, done, done + count)
        done += count
        run.batch_types[batches] = chosen
        run.batch_ends[batches] = done
        batches += 1
    return batches


FUNCTIONS = (
    raise_to, batch_paths, batch_frontiers, batch_depths, batch_ready, batch_cleared,
    batch_candidates, batch_sorted, batch_looked_up, batch_chosen, batch_ran, batch_schedule,
)  # fmt: skip
