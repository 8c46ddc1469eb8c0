"""Laws of KV memory (1 and 2 of docs/invariants.md), as functions that raise ``InvariantError``.

They hold between the planning of one step and of the next. Each is given a manager and, where it
needs them, all sequences that hold memory; none of them trusts a counter that it can count itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from simkv.errors import InvariantError
from simkv.kv.accounts import Accounts
from simkv.kv.blocks import Blocks
from simkv.kv.contiguous import Reservations
from simkv.kv.manager import KVManager
from simkv.kv.pool import NULL, Pool
from simkv.kv.prefix import Lane, PrefixCache, Run, Stretch
from simkv.kv.sequence import Sequence
from simkv.kv.usage import COUNTS


def check_memory(kv: KVManager, live: Iterable[Sequence]) -> None:
    """Check every law of a manager, given exactly the sequences that hold its memory."""
    live = list(live)
    check_slots(kv)
    check_capacity(live)
    if isinstance(kv, Reservations):
        check_reservations(kv, live)
    elif isinstance(kv, Blocks):
        check_holders(kv, live)
        check_pool(kv.pool)
        check_block_tables(kv, live)
    elif isinstance(kv, Accounts):
        check_blocks(kv, live)
        check_tails(kv, live)
        if kv.cache is not None:
            check_references(kv.cache, live)
            check_free_queue(kv.cache)
            check_lanes(kv.cache)
            check_tables(live)
            check_prefixes_closed(kv.cache, [sequence.table.content for sequence in live])


def check_slots(kv: KVManager) -> None:
    """Check that slots are conserved: the accounts add up to the pool, and none is negative."""
    usage = kv.usage()
    for name, count in zip(COUNTS, usage, strict=True):
        if count < 0:
            raise InvariantError(f"the pool has {count} {name} slots")
    if usage.pool != kv.pool_slots:
        raise InvariantError(
            f"the accounts add up to {usage.pool} slots, the pool has {kv.pool_slots}: {usage}"
        )


def check_capacity(live: Iterable[Sequence]) -> None:
    """Check that whoever holds memory has a slot for every token that it has computed."""
    for sequence in live:
        if sequence.table is None or sequence.computed_tokens > sequence.capacity_tokens:
            raise InvariantError(
                f"sequence {sequence.id} has {sequence.capacity_tokens} slots for its "
                f"{sequence.computed_tokens} computed tokens"
            )


def check_blocks(kv: Accounts, live: Iterable[Sequence]) -> None:
    """Check that held, cached and blank blocks add up to all but the null block."""
    runs = list(kv.cache.runs()) if kv.cache is not None else []
    held = sum(run.hi - run.lo for run in runs if run.refs)
    shared = {id(piece): piece for sequence in live for piece in sequence.table.shared}
    held += sum(piece.num_blocks for piece in shared.values())
    held += sum(sequence.table.num_private for sequence in live)
    cached = sum(run.hi - run.lo for run in runs if not run.refs)
    usage = kv.usage()
    blank = usage.free // kv.block_tokens
    if held + cached + blank != kv.num_blocks - 1 or cached * kv.block_tokens != usage.cached:
        raise InvariantError(
            f"{held} held, {cached} cached (accounts: {usage.cached} slots) and {blank} blank "
            f"blocks are not the {kv.num_blocks - 1} usable ones"
        )
    if cached + blank != kv.num_free_blocks:
        raise InvariantError(
            f"{cached} cached and {blank} blank blocks, but {kv.num_free_blocks} can be handed out"
        )


def check_tails(kv: Accounts, live: Iterable[Sequence]) -> None:
    """Check that no table has a whole unused block, and that the accounts know all tails.

    A partial block that several tables share counts once, and none of them writes to it unasked.
    """
    total = 0
    holders = Counter(id(piece) for sequence in live for piece in sequence.table.shared)
    seen: set[int] = set()
    for sequence in live:
        tail = sequence.table.num_blocks * kv.block_tokens - sequence.computed_tokens
        if not 0 <= tail < kv.block_tokens:
            raise InvariantError(
                f"sequence {sequence.id} leaves {tail} slots of {sequence.table.num_blocks} blocks "
                f"of {kv.block_tokens} unused"
            )
        last = sequence.table.shared[-1] if sequence.table.shared else None
        if last is None or not last.tail_slots:
            total += tail
            continue
        if last.tail_slots != tail or sequence.capacity_tokens > sequence.computed_tokens:
            raise InvariantError(f"sequence {sequence.id} may write to a block that it shares")
        if last.holders != holders[id(last)]:
            raise InvariantError(
                f"a shared block has {last.holders} holders, {holders[id(last)]} tables hold it"
            )
        total += 0 if id(last) in seen else tail
        seen.add(id(last))
    if total != kv.usage().tail:
        raise InvariantError(f"tails are {total} slots, the accounts say {kv.usage().tail}")


def check_references(cache: PrefixCache, live: Iterable[Sequence]) -> None:
    """Check that a run has as many references as tables hold it, and that held ones are cached."""
    holders = Counter(run for sequence in live for run in _held(sequence))
    for run in cache.runs():
        if run.refs != holders[run]:
            raise InvariantError(
                f"{_describe(run)} has {run.refs} references, {holders[run]} tables hold it"
            )
    known = set(cache.runs())
    for run in holders:
        if run not in known:
            raise InvariantError(f"{_describe(run)} is held, but not in the cache")


def check_free_queue(cache: PrefixCache) -> None:
    """Check that the free queue is exactly the runs without references, each once."""
    queued = list(cache.idle_runs())
    idle = {run for run in cache.runs() if not run.refs}
    for run in queued:
        if run not in idle:
            raise InvariantError(f"{_describe(run)} is in the free queue with {run.refs} refs")
    if len(queued) != len(idle):
        raise InvariantError(f"the free queue has {len(queued)} runs, {len(idle)} are idle")
    num_blocks = sum(run.hi - run.lo for run in queued)
    if num_blocks != cache.num_idle_blocks:
        raise InvariantError(
            f"the free queue has {num_blocks} blocks, the cache counts {cache.num_idle_blocks}"
        )


def check_lanes(cache: PrefixCache) -> None:
    """Check that the runs of a segment, oldest first, extend one range without a hole.

    So whatever is before a cached block is cached in a copy that is not younger, and a lookup that
    has come to a copy may follow it to its end.
    """
    ranges: dict[Lane, tuple[int, int]] = {}
    for run in cache.runs():
        if run.lo >= run.hi or run.refs < 0:
            raise InvariantError(f"{_describe(run)} is empty or has {run.refs} references")
        first, end = ranges.get(run.lane, (run.lo, run.lo))
        if not first <= run.lo <= end:
            raise InvariantError(f"{_describe(run)} does not follow older ones of {first} to {end}")
        ranges[run.lane] = first, max(end, run.hi)
    for lane, (_, end) in ranges.items():
        if end != lane.end:
            raise InvariantError(
                f"the runs of segment {lane.segment} end at {end}, its lane at {lane.end}"
            )


def check_tables(live: Iterable[Sequence]) -> None:
    """Check that what a table holds follows its content, block after block from the first."""
    for sequence in live:
        table, end = sequence.table, 0
        owners = {stretch.segment: stretch for stretch in table.content}
        for run in _held(sequence):
            stretch = owners.get(run.lane.segment)
            inside = stretch is not None and stretch.first <= run.lo and run.hi <= stretch.end
            if not inside or run.lo != end:
                raise InvariantError(
                    f"after {end} blocks sequence {sequence.id} holds {_describe(run)}"
                )
            end = run.hi
        if end != table.num_registered or end > table.num_blocks:
            raise InvariantError(
                f"sequence {sequence.id} holds runs of {end} blocks, {table.num_registered} of its "
                f"{table.num_blocks} are registered"
            )


def check_prefixes_closed(cache: PrefixCache, contents: Iterable[list[Stretch]]) -> None:
    """Check that whatever is cached of these contents has all blocks before it cached too."""
    lanes: dict[int, tuple[int, int]] = {}
    for run in cache.runs():
        first, end = lanes.get(run.lane.segment, (run.lo, run.hi))
        lanes[run.lane.segment] = (min(first, run.lo), max(end, run.hi))
    for content in contents:
        for stretch in content:
            if stretch.segment in lanes and lanes[stretch.segment][0] != stretch.first:
                raise InvariantError(
                    f"segment {stretch.segment} begins at block {stretch.first} and is cached "
                    f"from {lanes[stretch.segment][0]}"
                )
        for before, after in pairwise(content):
            end = lanes[before.segment][1] if before.segment in lanes else before.first
            if after.segment in lanes and end < before.end:
                raise InvariantError(
                    f"segment {after.segment} is cached from block {after.first}, segment "
                    f"{before.segment} before it only to {end}"
                )


def check_reservations(kv: Reservations, live: Iterable[Sequence]) -> None:
    """Check that reservations and holes tile the pool, and that no two holes touch."""
    live = list(live)
    held = [(sequence.table, sequence.table + kv.reserve_tokens, True) for sequence in live]
    pieces = sorted([*held, *((start, end, False) for start, end in kv.holes)])
    end = 0
    for start, stop, _ in pieces:
        if start != end or stop <= start:
            raise InvariantError(f"slots {start} to {stop} do not follow slot {end}")
        end = stop
    if end != kv.pool_slots:
        raise InvariantError(f"holes and reservations end at {end}, the pool at {kv.pool_slots}")
    for (_, end, one), (_, _, other) in pairwise(pieces):
        if not one and not other:
            raise InvariantError(f"two holes touch at slot {end}")
    tokens = sum(sequence.computed_tokens for sequence in live)
    if tokens != kv.usage().tokens:
        raise InvariantError(f"{tokens} tokens are live, the accounts say {kv.usage().tokens}")


def check_holders(kv: Blocks, live: Iterable[Sequence]) -> None:
    """Check that a block has as many references as tables hold it, and that nobody writes to two.

    A block that two tables hold is full, or since a fork the last of all of them; then none of them
    may write to it without asking.
    """
    size = kv.block_tokens
    partial = set()
    for sequence in live:
        place, filled = divmod(sequence.computed_tokens, size)
        last = {table.blocks[place] for table in sequence.table} if filled else set()
        partial |= last
        may_write = sequence.capacity_tokens > sequence.computed_tokens
        if may_write and any(kv.pool.refs(block) > 1 for block in last):
            raise InvariantError(f"sequence {sequence.id} may write to a block that it shares")
    holders = Counter(
        block for sequence in live for table in sequence.table for block in table.blocks
    )
    del holders[NULL]
    for block in range(1, kv.num_blocks):
        refs = kv.pool.refs(block)
        if refs != holders[block]:
            raise InvariantError(f"block {block} has {refs} references, {holders[block]} holders")
        is_known = kv.pool.key(block) is not None or not kv.prefix_caching
        if refs > 1 and not is_known and block not in partial:
            raise InvariantError(f"block {block} is shared by {refs} tables and not registered")


def check_pool(pool: Pool) -> None:
    """Check that the free queue is the blocks without references, and the index those with keys."""
    queue = list(pool.free_blocks())
    free = [block for block in range(1, pool.num_blocks) if not pool.refs(block)]
    if sorted(queue) != free:
        raise InvariantError(f"{len(queue)} blocks are in the free queue, {len(free)} are free")
    num_cached = sum(pool.key(block) is not None for block in queue)
    if num_cached != pool.num_cached_free:
        raise InvariantError(f"{num_cached} free blocks are cached, not {pool.num_cached_free}")
    indexed = {block: key for key, blocks in pool.copies() for block in blocks}
    for block in range(pool.num_blocks):
        if indexed.get(block) != pool.key(block):
            raise InvariantError(
                f"block {block} is {pool.key(block)}, the index has it as {indexed.get(block)}"
            )


def check_block_tables(kv: Blocks, live: Iterable[Sequence]) -> None:
    """Check that tables are as long as what is computed, null where a window sees nothing only."""
    size, tails = kv.block_tokens, dict[int, int]()
    for sequence in live:
        known_tokens = sequence.computed_tokens - sequence.in_flight_tokens
        for group, table in zip(kv.groups, sequence.table, strict=True):
            tail = len(table.blocks) * size - sequence.computed_tokens
            if not 0 <= tail < size:
                raise InvariantError(f"sequence {sequence.id} leaves {tail} slots unused")
            if tail and tails.setdefault(table.blocks[-1], tail) != tail:
                raise InvariantError(f"block {table.blocks[-1]} is filled differently far by two")
            if table.num_null > group.num_skipped(known_tokens, size):
                raise InvariantError(
                    f"sequence {sequence.id} has lost {table.num_null} blocks after "
                    f"{known_tokens} tokens, some of which it still sees"
                )
            for place, block in enumerate(table.blocks):
                is_registered = table.num_null <= place < table.num_registered
                key = table.keys[place] if is_registered else None
                if (block == NULL) != (place < table.num_null) or kv.pool.key(block) != key:
                    raise InvariantError(
                        f"block {block} at {place} of sequence {sequence.id} is "
                        f"{kv.pool.key(block)}, not {key}"
                    )
    if (total := sum(tails.values())) != kv.usage().tail:
        raise InvariantError(f"tails are {total} slots, the accounts say {kv.usage().tail}")


def _held(sequence: Sequence) -> Iterator[Run]:
    """Walk over the runs that a table holds, cuts included, shallow to deep."""
    for run, first in sequence.table.held:
        parts, part = [run], run
        while part.lo > first and part.before is not None:
            part = part.before
            parts.append(part)
        yield from reversed(parts)


def _describe(run: Run) -> str:
    return f"the run of blocks {run.lo} to {run.hi} of segment {run.lane.segment}"
