"""Arithmetic on rows of Word2Vec's tables, in LLVM's own words: sixteen numbers at a time, whatever the machine has.

A row is as many numbers as a multiple of `LANES`, so that none is left over; what is beyond a vector's width is zero.
Left to itself the compiler asks before every sum whether rows overlap and does the last few numbers one by one, which
for a hundred numbers takes longer than the sum. Rows are named by addresses, and no address is checked. In which order
numbers are added is written down and not left to the compiler, which may decide otherwise the next time it compiles.
"""

import math
from typing import Any, no_type_check

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from regard.embedding.word2vec.block import EIGHT, LANES

NUMBER, COUNT, BYTE = ir.FloatType(), ir.IntType(64), ir.IntType(8).as_pointer()
VECTOR = ir.VectorType(NUMBER, LANES)
NUMBERS, WHOLES = ir.VectorType(NUMBER, EIGHT), ir.VectorType(ir.IntType(32), EIGHT)
POWERS_OF_TWO = (0.00134004, 0.00967604, 0.05550327, 0.24022107, 0.69314721, 1.00000008)
"""A polynomial close to 2ˣ for x from −½ to ½, the highest power first."""
LEAST_POWER = -100.0
"""Two to the power of this is nothing, and far from where a machine becomes slow."""
MOST = 8
"""Vectors of sums that are kept at once."""


@no_type_check
def _load(builder: Any, address: Any, offset: Any, kind: Any) -> Any:
    """What is so many numbers behind an address."""
    return builder.load(_place(builder, address, offset, kind), align=4)


@no_type_check
def _place(builder: Any, address: Any, offset: Any, kind: Any) -> Any:
    """The place so many numbers behind an address, as a pointer."""
    bytes_on = builder.add(address, builder.mul(offset, COUNT(4)))
    return builder.inttoptr(bytes_on, kind.as_pointer())


@no_type_check
def _row(builder: Any, rows: Any, which: Any, table: Any, width: Any) -> Any:
    """The address of a row of a table, which is the so-and-so-manyth in a list of rows."""
    row = builder.sext(_load(builder, rows, which, ir.IntType(32)), COUNT)
    return builder.add(table, builder.mul(builder.mul(row, width), COUNT(4)))


@no_type_check
def _everywhere(builder: Any, number: Any, lanes: int = LANES) -> Any:
    """A vector of one number."""
    empty, first = ir.Constant(ir.VectorType(NUMBER, lanes), ir.Undefined), ir.IntType(32)(0)
    one = builder.insert_element(empty, number, first)
    return builder.shuffle_vector(one, empty, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))


@no_type_check
def _multiply_add(builder: Any, first: Any, second: Any, third: Any) -> Any:
    """`first · second + third`."""
    kind = ir.FunctionType(first.type, [first.type] * 3)
    name = f"llvm.fmuladd.v{first.type.count}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [first, second, third])


@no_type_check
def _all(builder: Any, both: Any, vector: Any) -> Any:
    """All numbers of a vector in one, by what makes one of two: half with half, until one is left."""
    while vector.type.count > 1:
        half = vector.type.count // 2
        low, high = (
            ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(begin, begin + half))) for begin in (0, half)
        )
        empty = ir.Constant(vector.type, ir.Undefined)
        vector = both(builder.shuffle_vector(vector, empty, low), builder.shuffle_vector(vector, empty, high))
    return builder.extract_element(vector, ir.IntType(32)(0))


@no_type_check
def _strides(builder: Any, begin: Any, end: Any, step: int) -> Any:
    """A loop from `begin` in whole steps, as far as they fit before `end`."""
    return cgutils.for_range_slice(builder, begin, builder.sub(end, COUNT(step - 1)), COUNT(step), COUNT)


@intrinsic
@no_type_check
def dots(typing: Any, scores: Any, row: Any, rows: Any, count: Any, table: Any, width: Any) -> Any:
    """The products of one row with `count` rows of a table: six at a time, then one by one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scores, row, rows, count, table, width = arguments
        begin = COUNT(0)
        for together in (6, 1):
            sums = [cgutils.alloca_once(builder, VECTOR) for _ in range(together)]
            with _strides(builder, begin, count, together) as (j, _):
                others = [_row(builder, rows, builder.add(j, COUNT(other)), table, width) for other in range(together)]
                for total in sums:
                    builder.store(ir.Constant(VECTOR, [0.0] * LANES), total)
                with _strides(builder, COUNT(0), width, LANES) as (k, _):
                    numbers = _load(builder, row, k, VECTOR)
                    for other, total in zip(others, sums, strict=True):
                        more = _load(builder, other, k, VECTOR)
                        builder.store(_multiply_add(builder, numbers, more, builder.load(total)), total)
                for other, total in enumerate(sums):
                    place = _place(builder, scores, builder.add(j, COUNT(other)), NUMBER)
                    builder.store(_all(builder, builder.fadd, builder.load(total)), place)
            begin = builder.mul(builder.sdiv(count, COUNT(together)), COUNT(together))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, types.intp, types.intp, types.intp), generate


@no_type_check
def _slices(builder: Any, width: Any, work: Any) -> None:
    """Do `work(begin, vectors)` for a row in slices of as many vectors as can be held, and then for what is left."""
    with _strides(builder, COUNT(0), width, MOST * LANES) as (k, _):
        work(k, MOST)
    rest = builder.and_(width, COUNT(MOST * LANES - 1))
    begin, done = builder.sub(width, rest), builder.append_basic_block("done")
    choice = builder.switch(rest, done)
    for vectors in range(1, MOST):
        case = builder.append_basic_block(f"rest.{vectors}")
        choice.add_case(COUNT(vectors * LANES), case)
        with builder.goto_block(case):
            work(begin, vectors)
            builder.branch(done)
    builder.position_at_end(done)


@no_type_check
def _mixed(builder: Any, k: Any, vectors: int, weights: Any, apart: Any, rows: Any, count: Any, *table: Any) -> Any:
    """So many vectors, from `k` on, of the sum of `count` rows of a table, weighted by numbers so far apart."""
    sums = [cgutils.alloca_once(builder, VECTOR) for _ in range(vectors)]
    for total in sums:
        builder.store(ir.Constant(VECTOR, [0.0] * LANES), total)
    with _strides(builder, COUNT(0), count, 1) as (j, _):
        weight = _everywhere(builder, _load(builder, weights, builder.mul(j, apart), NUMBER))
        row = _row(builder, rows, j, *table)
        for part, total in enumerate(sums):
            numbers = _load(builder, row, builder.add(k, COUNT(part * LANES)), VECTOR)
            builder.store(_multiply_add(builder, weight, numbers, builder.load(total)), total)
    return [builder.load(total) for total in sums]


@intrinsic
@no_type_check
def mix(typing: Any, into: Any, weights: Any, apart: Any, rows: Any, count: Any, table: Any, width: Any) -> Any:
    """The sum of `count` rows of a table, weighted by numbers so far apart."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, *mixed = arguments

        def work(k: Any, vectors: int) -> None:
            for part, total in enumerate(_mixed(builder, k, vectors, *mixed)):
                place = _place(builder, into, builder.add(k, COUNT(part * LANES)), VECTOR)
                builder.store(total, place, align=4)

        _slices(builder, mixed[-1], work)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 7), generate


@intrinsic
@no_type_check
def mix_into(typing: Any, first: Any, around: Any, weights: Any, rows: Any, count: Any, table: Any, width: Any) -> Any:
    """Add such a sum to so many rows from the first on, and to so many more after one is left out."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, around, weights, rows, count, table, width = arguments
        before, behind = cgutils.unpack_tuple(builder, around)

        def work(k: Any, vectors: int) -> None:
            totals = _mixed(builder, k, vectors, weights, COUNT(1), rows, count, table, width)
            with _strides(builder, COUNT(0), builder.add(before, behind), 1) as (i, _):
                later = builder.zext(builder.icmp_signed(">=", i, before), COUNT)
                row = builder.add(first, builder.mul(builder.mul(builder.add(i, later), width), COUNT(4)))
                for part, total in enumerate(totals):
                    place = _place(builder, row, builder.add(k, COUNT(part * LANES)), VECTOR)
                    builder.store(builder.fadd(builder.load(place, align=4), total), place, align=4)

        _slices(builder, width, work)
        return context.get_dummy_value()

    return types.void(types.intp, types.UniTuple(types.intp, 2), *[types.intp] * 5), generate


@intrinsic
@no_type_check
def clear(typing: Any, first: Any, count: Any) -> Any:
    """Zeros, as many numbers from an address on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first, count = arguments
        with _strides(builder, COUNT(0), count, LANES) as (k, _):
            builder.store(ir.Constant(VECTOR, [0.0] * LANES), _place(builder, first, k, VECTOR), align=4)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@intrinsic
@no_type_check
def add(typing: Any, row: Any, times: Any, step: Any, width: Any) -> Any:
    """Add so many times a step to a row."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, times, step, width = arguments
        times = _everywhere(builder, times)
        with _strides(builder, COUNT(0), width, LANES) as (k, _):
            total = _multiply_add(builder, times, _load(builder, step, k, VECTOR), _load(builder, row, k, VECTOR))
            builder.store(total, _place(builder, row, k, VECTOR), align=4)
        return context.get_dummy_value()

    return types.void(types.intp, types.float32, types.intp, types.intp), generate


@no_type_check
def _prefetch(builder: Any, row: Any, width: Any, change: int, near: int) -> None:
    """Have a row brought near without waiting for it: to be changed (1) or only read, as near as can be (3) or less."""
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [BYTE, number, number, number])
    function = builder.module.declare_intrinsic("llvm.prefetch", [BYTE], kind)
    with _strides(builder, COUNT(0), width, LANES) as (k, _):
        place = _place(builder, row, k, ir.IntType(8))
        builder.call(function, [place, number(change), number(near), number(1)])


@intrinsic
@no_type_check
def fetch(typing: Any, row: Any, width: Any) -> Any:
    """Have a row brought near, though not into the nearest place, where few can be on their way at once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _prefetch(builder, *arguments, change=0, near=2)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@intrinsic
@no_type_check
def fetch_to_change(typing: Any, row: Any, width: Any) -> Any:
    """Have a row brought near, and taken from any other core that holds it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _prefetch(builder, *arguments, change=1, near=3)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@intrinsic
@no_type_check
def choose(typing: Any, condition: Any, first: Any, second: Any) -> Any:
    """One of two numbers by a condition that nobody can foresee, so without a branch."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        chosen = builder.select(*arguments)
        chosen.set_metadata("unpredictable", builder.module.add_metadata([]))
        return chosen

    return types.int32(types.boolean, types.int32, types.int32), generate


@no_type_check
def _small(builder: Any, sizes: Any) -> Any:
    """e to the power of minus these: a power of two times a polynomial, right to a ten-millionth."""
    powers = builder.fmul(sizes, _eight(-math.log2(math.e)))
    least = _eight(LEAST_POWER)
    powers = builder.select(builder.fcmp_ordered("<", powers, least), least, powers)
    whole = _each(builder, "floor", builder.fadd(powers, _eight(0.5)))
    part = builder.fsub(powers, whole)
    value = _eight(POWERS_OF_TWO[0])
    for coefficient in POWERS_OF_TWO[1:]:
        value = _multiply_add(builder, value, part, _eight(coefficient))
    exponents = builder.add(builder.fptosi(whole, WHOLES), ir.Constant(WHOLES, [127] * EIGHT))
    scale = builder.bitcast(builder.shl(exponents, ir.Constant(WHOLES, [23] * EIGHT)), NUMBERS)
    return builder.fmul(value, scale)


@no_type_check
def _eight(number: float) -> Any:
    """The same number for each of the questions that are answered at once."""
    return ir.Constant(NUMBERS, [ir.Constant(NUMBER, number)] * EIGHT)


@no_type_check
def _each(builder: Any, name: str, numbers: Any) -> Any:
    """A function of LLVM's, of each number."""
    kind = ir.FunctionType(NUMBERS, [NUMBERS])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{EIGHT}f32")
    return builder.call(function, [numbers])


@intrinsic
@no_type_check
def answer_eight(typing: Any, scores: Any, answers: Any, rate: Any) -> Any:
    """Turn scores into `rate · (answer − σ(score))`; their loss in two parts, `a + log b`: one log serves many."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], NUMBERS.as_pointer())
        scores, wanted = builder.load(place, align=4), _load(builder, arguments[1], COUNT(0), NUMBERS)
        sizes, one = _each(builder, "fabs", scores), _eight(1.0)
        small = _small(builder, sizes)
        factors = builder.fadd(one, small)
        likely = builder.fdiv(one, factors)  # σ(|score|)
        above = builder.fcmp_ordered(">=", scores, _eight(0.0))
        errors = builder.fsub(wanted, builder.select(above, likely, builder.fmul(small, likely)))
        rates = _everywhere(builder, arguments[2], EIGHT)
        builder.store(builder.fmul(rates, errors), place, align=4)
        wrong = builder.xor(above, builder.fcmp_ordered(">", wanted, _eight(0.5)))
        away = _all(builder, builder.fadd, builder.select(wrong, sizes, _eight(0.0)))
        product = _all(builder, builder.fmul, factors)
        return context.make_tuple(builder, signature.return_type, (away, product))

    return types.UniTuple(types.float32, 2)(types.intp, types.intp, types.float32), generate
