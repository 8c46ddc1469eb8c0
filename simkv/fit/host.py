"""What the host adds to a step, the same in every shipped profile."""

# Under asynchronous scheduling, vLLM's default in the versions measured here, the scheduler works
# on the next step while the device runs this one. So it adds nothing, and a step takes at least
# as long as the scheduler's own.
OVERHEAD_S = 0.0
FLOOR_S = 13e-6
FLOOR_SEQUENCE_S = 11.4e-6

SOURCE = (
    "vLLM 0.32's scheduler and KV manager timed on one core of a 2-core AMD EPYC: 13 us + 11.4 us "
    "a running request (medians 106, 742 and 3,093 us at 8, 64 and 256 running); overlapped with "
    "the device under asynchronous scheduling, so it is a floor of the step and not added"
)
