"""What a cost model may know of a step: numbers, never requests."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class StepWork:
    """The work of one step of one replica.

    Parameters
    ----------
    prefills
        One ``(new tokens, tokens already in the KV cache)`` pair for each prefilling entry.
    num_decodes
        Entries that compute exactly one token after their prompt.
    decode_context_tokens
        Sum over decodes of the tokens attended to, the new one included.
    max_decode_context_tokens
        The longest of them.
    num_sampled
        Entries that sample a token in this step (rows of the LM head).
    """

    prefills: list[tuple[int, int]] = field(default_factory=list)
    num_decodes: int = 0
    decode_context_tokens: int = 0
    max_decode_context_tokens: int = 0
    num_sampled: int = 0

    def later(self, num_steps: int) -> "StepWork":
        """Return the work after so many steps more, where every sequence decodes."""
        return StepWork(
            [],
            self.num_decodes,
            self.decode_context_tokens + num_steps * self.num_decodes,
            self.max_decode_context_tokens + num_steps,
            self.num_sampled,
        )

    @property
    def num_tokens(self) -> int:
        """Tokens computed in the step (rows of every dense layer)."""
        return self.num_decodes + sum(new for new, _ in self.prefills)
