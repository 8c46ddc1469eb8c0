"""A pool of numbered blocks: references, the index of cached content, and the free queue.

Here are the rules of vLLM V1's block pool (1, 5.5, 6.3 and 7.2 of its step logs), one block at a
time. What a block is for, and whose table it stands in, is not known here.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

Key = tuple[int, int, int]
"""Content of a block: attention group, segment in which it ends, and its place in the sequence.

Segment ids are chained (``simkv.workload.trace``), so two blocks with one key have equal tokens
before them too, and the key does the work of vLLM's chained hash without hashing any token.
"""

NULL = 0
"""The null block (1.1): never handed out; in a table it stands for "not kept"."""


class Pool:
    """Blocks 1 to ``num_blocks - 1``: who is free, who is cached, in which order they are used.

    Parameters
    ----------
    num_blocks
        Blocks, the null block included.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_cached_free = 0
        self.num_stored = 0
        self.num_evicted = 0
        self._refs = [0] * num_blocks
        self._key: list[Key | None] = [None] * num_blocks
        self._index: dict[Key, list[int]] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))

    @property
    def num_free(self) -> int:
        """Length of the free queue, cached blocks included (1.2)."""
        return len(self._free)

    def find(self, key: Key) -> int | None:
        """Return the block that was registered first under a key (1.3); changes nothing."""
        blocks = self._index.get(key)
        return blocks[0] if blocks else None

    def is_free(self, block: int) -> bool:
        """Whether nobody refers to a block."""
        return not self._refs[block]

    def refs(self, block: int) -> int:
        """Return how many tables hold a block."""
        return self._refs[block]

    def key(self, block: int) -> Key | None:
        """Return what a block is registered as, None if it is not."""
        return self._key[block]

    def take(self, num_blocks: int) -> list[int]:
        """Hand out blocks from the head; one that is cached is evicted, here and nowhere else."""
        taken = list(islice(self._free, num_blocks))
        for block in taken:
            del self._free[block]
            self._refs[block] = 1
            if self._key[block] is not None:
                self._forget(block)
        return taken

    def touch(self, blocks: Iterable[int]) -> None:
        """Refer to cached blocks once more; the free ones leave the queue (5.5)."""
        for block in blocks:
            if not self._refs[block]:
                del self._free[block]
                self.num_cached_free -= self._key[block] is not None
            self._refs[block] += 1

    def share(self, blocks: Iterable[int]) -> None:
        """Refer once more to blocks that are held."""
        for block in blocks:
            self._refs[block] += 1

    def drop(self, blocks: Sequence[int]) -> None:
        """Drop one reference each, in the order given (7.1, 7.2).

        Of those that nobody holds any more, the ones with a key go to the end of the queue in this
        order, the others to its head as one piece in this order.
        """
        blank = []
        for block in blocks:
            self._refs[block] -= 1
            if self._refs[block]:
                continue
            if self._key[block] is None:
                blank.append(block)
            else:
                self._free[block] = None
                self.num_cached_free += 1
        for block in reversed(blank):
            self._free[block] = None
            self._free.move_to_end(block, last=False)

    def register(self, block: int, key: Key) -> None:
        """Enter a full block into the index, behind earlier copies of the same content (5.6)."""
        self._key[block] = key
        self._index.setdefault(key, []).append(block)
        self.num_stored += 1

    def free_blocks(self) -> Iterator[int]:
        """Walk over the free queue, the next to be handed out first."""
        return iter(self._free)

    def copies(self) -> Iterator[tuple[Key, list[int]]]:
        """Walk over the index: each key with its blocks in order of registration."""
        return iter(self._index.items())

    def queue_digest(self) -> str:
        """Return 16 hexadecimal digits that stand for the free queue and its order."""
        text = ",".join(map(str, self._free))
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]

    def _forget(self, block: int) -> None:
        key = self._key[block]
        if key is None:
            return
        copies = self._index[key]
        copies.remove(block)
        if not copies:
            del self._index[key]
        self._key[block] = None
        self.num_cached_free -= 1
        self.num_evicted += 1
