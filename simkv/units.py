"""Conversions between the units that people write and the units that names carry.

Inside simkv every quantity is in the unit of its name's ending (``_s``, ``_bytes``, ``_tokens``,
``_ratio``); only the edges (readers, command line, tables for people) convert.
"""

KIB = 1024
MIB = 1024**2
GIB = 1024**3
GB = 10**9
TB = 10**12
TFLOP = 10**12

MS_PER_S = 1_000
US_PER_S = 1_000_000
NS_PER_S = 1_000_000_000
