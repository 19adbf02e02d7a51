"""Pages of a pool: who owns them, what happens when there are none left."""

from __future__ import annotations

import random

import pytest

from relaxlab.models.pages import PageAllocator, PagedSequence, PoolExhausted
from relaxlab.nn.paged_loops import PAGE


def test_sequences_take_pages_as_they_grow_and_give_them_back():
    allocator = PageAllocator(4)
    a, b = PagedSequence(allocator), PagedSequence(allocator)
    assert a.extend(PAGE) is None and len(a.pages) == 1
    a.extend(1)
    b.extend(3)
    assert (len(a.pages), len(b.pages), allocator.free) == (2, 1, 1)
    assert not set(a.pages) & set(b.pages)
    a.truncate(0)
    assert (a.pages, a.length, allocator.free) == ([], 0, 3)


def test_nothing_is_lost_when_the_pool_is_exhausted():
    allocator = PageAllocator(3)
    a, b = PagedSequence(allocator), PagedSequence(allocator)
    a.extend(PAGE + 1)
    b.extend(5)
    before = list(b.pages)
    with pytest.raises(PoolExhausted, match="2 pages of 16 positions are needed, 0 of 3 are free"):
        b.extend(2 * PAGE)
    assert (b.pages, b.length, allocator.free) == (before, 5, 0)
    a.truncate(0)
    b.extend(2 * PAGE)
    assert b.pages[:1] == before and b.length == 2 * PAGE + 5


def test_a_fork_shares_pages_until_a_write():
    allocator = PageAllocator(5)
    a = PagedSequence(allocator)
    a.extend(PAGE + 4)
    b = a.fork()
    assert b.pages == a.pages and allocator.free == 3
    shared, last = a.pages
    assert b.missing(1) == 1
    copied = b.extend(1)
    assert copied is not None and copied[0] == last and copied[1] == b.pages[-1] != last
    assert b.pages[0] == shared and a.pages == [shared, last]
    assert a.extend(1) is None, "the only owner left writes into its page"
    a.truncate(0)
    assert allocator.free == 3 and not allocator.is_shared(shared)
    b.truncate(0)
    assert allocator.free == 5


def test_full_pages_stay_shared():
    allocator = PageAllocator(4)
    a = PagedSequence(allocator)
    a.extend(PAGE)
    b = a.fork()
    assert b.extend(1) is None and b.pages[0] == a.pages[0] and allocator.free == 2


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="at least one page"):
        PageAllocator(0)
    allocator = PageAllocator(2)
    (page,) = allocator.allocate(1)
    allocator.release([page])
    for misuse in (allocator.release, allocator.share):
        with pytest.raises(ValueError, match=f"page {page} is free"):
            misuse([page])


def test_random_sequences_never_meet_in_a_page_they_write():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    allocator = PageAllocator(12)
    content: dict[int, list[int]] = {}  # what was written to each page, by position
    alive: list[tuple[PagedSequence, list[int]]] = []
    for step in range(2000):
        action = rng.choice(("new", "extend", "extend", "extend", "fork", "clear"))
        if action == "new" or not alive:
            alive.append((PagedSequence(allocator), []))
        elif action == "fork":
            sequence, ids = rng.choice(alive)
            alive.append((sequence.fork(), list(ids)))
        elif action == "clear":
            alive.pop(rng.randrange(len(alive)))[0].truncate(0)
        else:
            sequence, ids = rng.choice(alive)
            rows = rng.randrange(1, 25)
            if sequence.missing(rows) > allocator.free:
                with pytest.raises(PoolExhausted):
                    sequence.extend(rows)
                continue
            start = sequence.length
            copied = sequence.extend(rows)
            if copied is not None:
                content[copied[1]] = list(content[copied[0]])
            for position in range(start, sequence.length):
                page = sequence.pages[position // PAGE]
                held = content.setdefault(page, [])
                del held[position % PAGE :]
                held.append(step)
                ids.append(step)
        for sequence, ids in alive:
            read = [content[sequence.pages[p // PAGE]][p % PAGE] for p in range(len(ids))]
            assert read == ids
    for sequence, _ in alive:
        sequence.truncate(0)
    assert allocator.free == 12
