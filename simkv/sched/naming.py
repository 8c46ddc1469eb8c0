"""Which decoding requests write content that others can name, segment by segment.

What a request generates is mostly its own. Where a trace names it, a follow-up can find its blocks
in the prefix cache, and two requests may write the same. The cache keeps copies in the order in
which they were registered, so whoever brings one request's blocks up to date late must do so for
all that write into the same segments.
"""

from collections.abc import Iterable

from simkv.sched.request import Request


class Writers:
    """The requests of a group that may still register blocks of segments that others can name.

    ``segments`` has them, each with the segments that it still writes into.
    """

    def __init__(self) -> None:
        self.segments: dict[Request, list[int]] = {}
        self._by_segment: dict[int, dict[Request, None]] = {}

    def add(self, request: Request, segments: list[int]) -> None:
        """Note that a request writes into these segments, one after the other."""
        self.segments[request] = segments
        for segment in segments:
            self._by_segment.setdefault(segment, {})[request] = None

    def remove(self, request: Request) -> None:
        """Forget a request, if it is known."""
        for segment in self.segments.pop(request, ()):
            writers = self._by_segment[segment]
            del writers[request]
            if not writers:
                del self._by_segment[segment]

    def clear(self) -> None:
        """Forget all."""
        self.segments.clear()
        self._by_segment.clear()

    def writes_to(self, request: Request) -> bool:
        """Whether anybody writes into the content of a request."""
        known = self._by_segment
        return bool(known) and any(segment in known for segment, _ in request.segments)

    def family(self, requests: Iterable[Request]) -> list[Request]:
        """Return who writes into these requests' content, and into the content of those, and so on.

        A request that is known is in its own family.
        """
        found: dict[Request, None] = {}
        segments = [segment for request in requests for segment, _ in request.segments]
        for segment in segments:
            for request in self._by_segment.get(segment, ()):
                if request not in found:
                    found[request] = None
                    segments += self.segments[request]
        return list(found)
