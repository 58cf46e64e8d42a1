"""The lowerings that also take nodes whose images are channels-last (`Node.channels_last`), by domain and operator."""

from __future__ import annotations

from collections.abc import Mapping

from webrt.lowering import LowerFn
from webrt.ops.concat import concat
from webrt.ops.conv import conv
from webrt.ops.conv_transpose import conv_transpose
from webrt.ops.global_pool import global_average_pool, global_max_pool
from webrt.ops.pool import average_pool, max_pool
from webrt.ops.reduce import reduce_extreme, reduce_sum
from webrt.ops.resize import resize

CHANNELS_LAST: Mapping[tuple[str, str], LowerFn] = {
    ("", "Conv"): conv,
    ("", "ConvTranspose"): conv_transpose,
    ("", "Concat"): concat,
    ("", "MaxPool"): max_pool,
    ("", "AveragePool"): average_pool,
    ("", "GlobalAveragePool"): global_average_pool,
    ("", "GlobalMaxPool"): global_max_pool,
    ("", "ReduceMean"): reduce_sum,
    ("", "ReduceMax"): reduce_extreme,
    ("", "Resize"): resize,
    ("", "Upsample"): resize,
}
