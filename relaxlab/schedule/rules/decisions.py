"""The decisions of rules, by name: what is decided, and among what. Which default a rule takes, and
why, is said where it asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.schedule import Schedule

Chosen = TypeVar("Chosen", bound=int | str)


@dataclass(frozen=True, slots=True)
class Choice(Generic[Chosen]):
    """A decision that rules ask for: its name, its candidates, and what it decides, as a phrase."""

    name: str
    candidates: tuple[Chosen, ...]
    meaning: str

    def of(self, sch: Schedule, default: Chosen, about: str | None = None) -> Chosen:
        """Ask the schedule; with `about`, for the decision about that block or buffer alone. The
        default is one of the candidates."""
        name = self.name if about is None else f"{self.name}({about})"
        return sch.sample_categorical(name, self.candidates, default)

    def at_most(self: Choice[int], sch: Schedule, most: int, about: str | None = None) -> int:
        """Ask the schedule; the default is the largest candidate up to `most`, or the smallest."""
        fitting = (c for c in self.candidates if c <= most)
        return self.of(sch, max(fitting, default=min(self.candidates)), about)

    def where(self, fits: Callable[[Chosen], bool]) -> Choice[Chosen]:
        """The choice among the candidates that fit a machine or a kernel. Raises ScheduleError
        where there is none."""
        fitting = tuple(filter(fits, self.candidates))
        if not fitting:
            raise ScheduleError("schedule", self.name, "one of its candidates fits the target")
        return Choice(self.name, fitting, self.meaning)


POWERS = (1, 2, 4, 8)
FLAG = (False, True)

REGISTER_ROWS = Choice(
    "register_rows", (1, 2, 3, 4, 6, 8, 12, 16),
    "rows of a register tile, each with an accumulator per vector of columns",
)  # fmt: skip
PANEL_VECTORS = Choice(
    "panel_vectors", (1, 2, 3, 4), "most vectors of columns of a panel of a matrix, and of its tile"
)
TILE_VECTORS = Choice(
    "tile_vectors", (1, 2, 3, 4), "most vectors of columns of a register tile without a panel"
)
SWEEP_VECTORS = Choice(
    "sweep_vectors", (2, 4, 8, 16, 32),
    "most vectors of columns whose sums stay in the first-level cache while a matrix that is read "
    "in place is read once",
)  # fmt: skip
UNROLL_REDUCTION = Choice(
    "unroll_reduction", POWERS, "steps of the reduction unrolled in a register tile"
)
UNROLL_IN_PLACE = Choice(
    "unroll_in_place", (2, 4, 8, 16), "rows of a matrix read in place that are read side by side"
)
SPLIT_K = Choice("split_k", (4, 8, 16, 32), "parts of a reduction that threads share (split-K)")
IN_PLACE_ROWS = Choice(
    "in_place_rows", (4, 8, 16, 24), "most rows for which the matrix is read in place, uncopied"
)
DOT_ROWS = Choice(
    "dot_rows", (1, 2, 4, 8, 16, 24, 32, 48, 64),
    "most rows for which each result is a dot product along rows of the matrix, which is not "
    "copied",
)  # fmt: skip
DOT_TILE_ROWS = Choice("dot_tile_rows", (1, 2, 3, 4, 6, 8), "rows of a tile of dot products")
DOT_TILE_COLUMNS = Choice(
    "dot_tile_columns", (1, 2, 3, 4, 6, 8), "columns of a tile of dot products"
)
COPY_OPERAND = Choice(
    "copy_operand", FLAG, "True: a matrix is copied panel by panel; False: it is read in place"
)
NARROW_PANELS = Choice(
    "narrow_panels",
    (1, 2, 3, 4),
    "vectors of columns up to which a symbolic number of columns has a version for each",
)
FEW_PANELS = Choice(
    "few_panels", (5, 7, 10, 11, 13, 17),
    "vectors of columns up to which a symbolic number of them has panels of one vector",
)  # fmt: skip
BLOCK_DEPTH = Choice("block_depth", (64, 128, 256, 512), "depth of a block of a deep product")
BLOCK_COLUMNS = Choice("block_columns", (32, 64, 128, 256), "columns of a block of a deep product")
BLOCK_TILES = Choice("block_tiles", (2, 4, 8, 16), "register tiles of rows in a block of a product")
PREFETCH_DISTANCE = Choice(
    "prefetch_distance", (0, 4, 8, 16, 32, 64, 128),
    "iterations by which what a loop streams past is prefetched; 0: not at all",
)  # fmt: skip
UNROLL_PAIRS = Choice(
    "unroll_pairs", (1, 2, 4, 8, 16), "pairs of a row of bfloat16 that are unrolled"
)
UNROLL_ROWS = Choice("unroll_rows", (4, 8, 16, 32), "most rows of a small block that are unrolled")
VECTORS_AT_ONCE = Choice(
    "vectors_at_once", POWERS,
    "vectors of a step, independent of each other, where they divide what is computed",
)  # fmt: skip
NESTED_VECTORS = Choice(
    "nested_vectors", POWERS, "vectors of a step of the blocks inside a tile, where they divide it"
)
COLUMN_VECTORS = Choice(
    "column_vectors", POWERS, "vectors of columns that a thread goes down at once"
)
CHUNK = Choice(
    "chunk", (64, 128, 256, 512, 1024), "positions whose scores are computed before they are used"
)
HEADS_APART = Choice(
    "heads_apart", FLAG,
    "True: keys are copied and attended to for one head after the other, threads share out rows; "
    "False: for all heads together",
)  # fmt: skip
SHARED_HEADS = Choice(
    "shared_heads", (1, 2, 3, 4, 6, 8), "heads that are a tile of attention and read its keys once"
)
TILE_SIDE = Choice("tile_side", (32, 64, 128), "rows and columns of a tile that is transposed")
SQUARE = Choice(
    "square", (16, 8, 4), "rows and columns that are turned in registers, as vectors of a tile"
)
TERMS_COPIED = Choice(
    "terms_copied", (16, 32, 64, 128), "terms of a vector of columns that a thread packs at once"
)
PARTIAL_VECTORS = Choice(
    "partial_vectors", POWERS,
    "vectors of partial results of a reduction along rows, independent of each other",
)  # fmt: skip
ROWS_PER_TILE = Choice(
    "rows_per_tile", POWERS, "rows made at once from one read of the operand that they share"
)
PREFETCH_ROWS = Choice(
    "prefetch_rows", FLAG, "True: the next row is prefetched during the last pass over one"
)
PREFETCH_PANEL = Choice(
    "prefetch_panel", FLAG,
    "True: the next vectors of columns are prefetched while a tile of rows is multiplied",
)  # fmt: skip
SHARE_TERMS = Choice(
    "share_terms", FLAG,
    "True: threads share out a reduction's terms and add their partial results; False: its results",
)  # fmt: skip
SHARE_OUT = Choice("share_out", FLAG, "True: threads share out the block; False: one computes it")

# Rules for GPUs. What the machine bounds, they leave out where they ask.

THREADS = (32, 64, 128, 256, 512, 1024)
SIDES = (4, 8, 16, 32)

THREADS_PER_BLOCK = Choice(
    "threads_per_block", THREADS, "most threads of a block, where there is enough to do"
)
RESULTS_PER_THREAD = Choice(
    "results_per_thread", POWERS, "results, or vectors of them, that a thread computes in turn"
)
VECTOR_WIDTH = Choice(
    "vector_width", (1, 2, 4, 8, 16), "neighbours that a thread loads and stores together"
)
THREADS_PER_ROW = Choice("threads_per_row", THREADS, "threads that share a row")
ROWS_PER_BLOCK = Choice("rows_per_block", POWERS, "rows that a block of threads works on")
ROW_IN_SHARED_MEMORY = Choice(
    "row_in_shared_memory", FLAG,
    "True: values of a row that are read again are in shared memory; False: in main memory",
)  # fmt: skip
ROW_IN_REGISTERS = Choice(
    "row_in_registers", FLAG,
    "True: each thread keeps its elements of a row in registers; False: it loads them again",
)  # fmt: skip
UNROLL_TERMS = Choice(
    "unroll_terms", POWERS, "terms of its part of a reduction that a thread adds in unrolled steps"
)
REDUCTION_SPLITS = Choice(
    "reduction_splits",
    (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    "parts of a reduction that blocks of threads share",
)
ROW_THREADS = Choice("row_threads", SIDES, "threads along the rows of a tile of a product")
COLUMN_THREADS = Choice("column_threads", SIDES, "threads along the columns of a tile of a product")
THREAD_ROWS = Choice(
    "thread_rows", (1, 2, 3, 4, 6, 8), "rows of the results that a thread has in registers"
)
THREAD_COLUMNS = Choice(
    "thread_columns", (1, 2, 3, 4, 6, 8), "columns of the results that a thread has in registers"
)
REDUCTION_STEP = Choice(
    "reduction_step", (4, 8, 16, 32, 64), "terms of a product that are copied at once"
)
OPERAND_IN_SHARED_MEMORY = Choice(
    "operand_in_shared_memory", FLAG,
    "True: the threads of a block copy a slice of the operand into shared memory; False: each "
    "reads it where it is",
)  # fmt: skip
COPY_WIDTH = Choice(
    "copy_width", (1, 2, 4, 8, 16), "neighbours that a thread copies together into shared memory"
)
ROWS_BY_WARPS = Choice(
    "rows_by_warps", (1, 2, 3, 4, 6, 8),
    "most rows for which threads share each result of a product, and there are no tiles",
)  # fmt: skip
THREADS_PER_RESULT = Choice(
    "threads_per_result", (8, 16, 32, 64, 128), "threads that share a result of a product"
)
RESULTS_PER_BLOCK = Choice(
    "results_per_block", (1, 2, 4, 8, 16, 32), "results of a product that a block of threads has"
)
BLOCK_ROWS = Choice("block_rows", (16, 32, 64, 128, 256), "rows of the tile of a block of warps")
BLOCK_COLS = Choice("block_cols", (16, 32, 64, 128, 256), "columns of the tile of a block of warps")
BLOCK_TERMS = Choice("block_terms", (16, 32, 64), "terms of a product that warps copy at once")
PIPELINE_STAGES = Choice(
    "pipeline_stages", (1, 2, 3, 4, 5, 6),
    "slices in shared memory, all but one of which are copied while one is used",
)  # fmt: skip
FRAGMENTS_AHEAD = Choice(
    "fragments_ahead", FLAG,
    "True: operands of the next tensor instructions are loaded into registers while some compute",
)  # fmt: skip
RASTER_COLUMNS = Choice(
    "raster_columns", (1, 2, 4, 8, 16),
    "columns of tiles whose blocks follow each other row by row, for the second-level cache",
)  # fmt: skip
WARPGROUPS = Choice(
    "warpgroups", (1, 2), "warpgroups of a block that multiply, each 64 rows of a tile of a product"
)
WARPGROUP_COLS = Choice(
    "warpgroup_cols", (64, 128, 192, 256), "columns of the tile of a block of warpgroups"
)
SPLIT_TERMS = Choice(
    "split_terms", (1, 2, 3, 4, 6, 8),
    "blocks that share the terms of a tile of a product (split-K)",
)  # fmt: skip
PERSISTENT_BLOCKS = Choice(
    "persistent_blocks", (66, 132, 264),
    "most blocks of a grid, each of which takes tile after tile of a product",
)  # fmt: skip
WARP_ROWS = Choice("warp_rows", (1, 2, 4), "warps along the rows of a tile of a product")
WARP_COLS = Choice("warp_cols", (1, 2, 4), "warps along the columns of a tile of a product")
ONLINE_SOFTMAX = Choice(
    "online_softmax", FLAG,
    "True: positions come in chunks, with a running maximum; False: a row has all its scores",
)  # fmt: skip
QUERY_ROWS = Choice("query_rows", (2, 4, 8, 16, 32, 64, 128), "query rows of a tile of attention")
WARP_QUERIES = Choice("warp_queries", (16, 32), "queries of a warp that multiplies by tensor cores")
QUERY_STAGES = Choice(
    "query_stages", (2, 3, 4),
    "chunks of keys and values in shared memory, all but one of which are copied while one is used",
)  # fmt: skip
POSITION_PARTS = Choice(
    "position_parts", (1, 2, 4, 8, 16, 32, 64),
    "parts of the positions of one query, a thread's or, on a GPU, those of a block of threads",
)  # fmt: skip
THREADS_PER_KEY = Choice(
    "threads_per_key", (4, 8, 16), "threads that share the product of a query and a key"
)
POSITIONS = Choice("positions", (16, 32, 64, 128, 256), "positions of a chunk of attention")


def meaning_of(name: str) -> str:
    """The decision of that name as a phrase; "" for one that is not a rule's."""
    return _MEANINGS.get(name.partition("(")[0], "")


_MEANINGS = {
    value.name: value.meaning for value in tuple(globals().values()) if isinstance(value, Choice)
}
