# SPDX-License-Identifier: MIT
"""A Numba program whose calls are worth recording: queries over tables of columns. Each takes some rows of a table of sales,
part by part, joins them with two smaller tables by hashes, and sums them by group; how much comes out of each step is known
only when it has been counted. With --device cpu and NUMBA_ENABLE_CUDASIM=1 Numba's simulator does the same."""
import sys

import numpy
import scale

# Releases of Numba's CUDA target older than NumPy 2.5 still name this function, which is gone.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack

from numba import cuda

THREADS, NONE = 128, -1


@cuda.jit
def fill_kernel(values, value):
    i = cuda.grid(1)
    if i < values.size:
        values[i] = value


@cuda.jit
def select_kernel(column, low, high, rows, n):
    """The rows whose value is within bounds; only their number where `rows` is too short."""
    i = cuda.grid(1)
    if i < column.size and low <= column[i] < high:
        at = cuda.atomic.add(n, 0, 1)
        if at < rows.size:
            rows[at] = i


@cuda.jit
def take_kernel(column, rows, taken):
    i = cuda.grid(1)
    if i < rows.size:
        taken[i] = column[rows[i]]


@cuda.jit
def build_kernel(keys, heads, following):
    """Chains of the rows whose keys meet in one slot."""
    i = cuda.grid(1)
    if i < keys.size:
        following[i] = cuda.atomic.exch(heads, keys[i] % heads.size, i)


@cuda.jit
def probe_kernel(keys, others, heads, following, left, right, n):
    """Pairs of rows with the same key; only their number where there is no room for them."""
    i = cuda.grid(1)
    if i < keys.size:
        row = heads[keys[i] % heads.size]
        while row >= 0:
            if others[row] == keys[i]:
                at = cuda.atomic.add(n, 0, 1)
                if at < left.size:
                    left[at], right[at] = i, row
            row = following[row]


@cuda.jit
def sum_kernel(groups, values, sums, counts):
    i = cuda.grid(1)
    if i < groups.size:
        cuda.atomic.add(sums, groups[i], values[i])
        cuda.atomic.add(counts, groups[i], 1)


def launch(kernel, n, *arguments):
    kernel[max(1, -(-n // THREADS)), THREADS](*arguments)


def filled(n, value, kind=numpy.int64):
    made = cuda.device_array(n, kind)
    launch(fill_kernel, n, made, value)
    return made


def counted(run):
    """Does something twice: to count what comes out, and with room for all of it. `run` takes how much room there is, and
    where to count; it returns what came out."""
    n = filled(1, 0)
    run(0, n)
    room = int(n.copy_to_host()[0])
    return run(room, filled(1, 0))


def select(values, low, high):
    def run(room, n):
        rows = cuda.device_array(room, numpy.int64)
        launch(select_kernel, values.size, values, low, high, rows, n)
        return rows
    return counted(run)


def take(values, rows):
    taken = cuda.device_array(rows.size, values.dtype)
    launch(take_kernel, rows.size, values, rows, taken)
    return taken


def join(keys, others):
    """Rows of both sides whose keys are the same."""
    heads = filled(1 << max(4, int(1.5 * others.size).bit_length()), NONE)
    following = cuda.device_array(others.size, numpy.int64)
    launch(build_kernel, others.size, others, heads, following)

    def run(room, n):
        left, right = (cuda.device_array(room, numpy.int64) for _ in range(2))
        launch(probe_kernel, keys.size, keys, others, heads, following, left, right, n)
        return left, right
    return counted(run)


def query(world, sales, customers, goods, parts):
    """Sums by group of the sales of some days, of some customers, with each good's promotions."""
    low, n_groups = world.random.randint(0, 300), world.random.choice(world.of((64, 50000, 600000), (4, 16)))
    known = select(customers["age"], world.random.randint(18, 50), world.random.randint(51, 90))
    names = take(customers["id"], known)
    sums, counts = filled(n_groups, 0.0, numpy.float64), filled(n_groups, 0)
    for part in parts:
        of_part = {name: values[part] for name, values in sales.items()}
        rows = select(of_part["day"], low, low + world.random.randint(20, 200))
        left, _ = join(take(of_part["customer"], rows), names)
        rows = take(rows, left)
        left, right = join(take(of_part["good"], rows), goods["id"])
        groups = take(goods[f"group of {n_groups}"], right)
        launch(sum_kernel, groups.size, groups, take(of_part["price"], take(rows, left)), sums, counts)
    return float(sums.copy_to_host().sum() / max(1, counts.copy_to_host().sum()))


def tables(world):
    draw = numpy.random.default_rng(scale.SEED)
    n_sales, n_customers, n_goods = world.of((24000000, 900000, 700000), (600, 40, 30))
    sales = {"day": draw.integers(0, 365, n_sales), "customer": draw.integers(0, n_customers, n_sales),
             "good": draw.integers(0, n_goods, n_sales), "price": draw.random(n_sales)}
    customers = {"id": draw.permutation(n_customers), "age": draw.integers(18, 90, n_customers)}
    goods = {"id": draw.integers(0, n_goods, 2 * n_goods),
             **{f"group of {n}": draw.integers(0, n, 2 * n_goods) for n in world.of((64, 50000, 600000), (4, 16))}}
    return [{name: cuda.to_device(values) for name, values in table.items()} for table in (sales, customers, goods)]


def main(arguments=None):
    world = scale.parse(__doc__, arguments)
    sales, customers, goods = tables(world)
    n_sales, total, n_queries = sales["day"].size, 0.0, world.of(40, 1)
    for _ in range(n_queries):
        at, parts = 0, []
        while at < n_sales:
            end = min(n_sales, at + world.random.randint(n_sales // 12, n_sales // 3))
            parts.append(slice(at, end))
            at = end
        total += query(world, sales, customers, goods, parts)
    return scale.finish(n_queries, total)


if __name__ == "__main__":
    sys.exit(main())
