"""Which moments are tried: a few in the default run, all of them in the slow one, the same ones each time."""

import os
import random
import zlib
from typing import List, Sequence

# another number tries other moments; MASKPLUGINS_FAULT_MOMENTS tries more of them
SEED = os.environ.get("MASKPLUGINS_FAULT_SEED", "0")
COUNT = os.environ.get("MASKPLUGINS_FAULT_MOMENTS")


def choose(name: str, moments: Sequence[int], count: int, always: Sequence[int] = ()) -> List[int]:
    """``count`` of the moments by chance, and those of ``always``, in order."""
    rng = random.Random(zlib.crc32(f"{SEED} {name}".encode()))
    count = int(COUNT or count)
    chosen = sorted({*rng.sample(list(moments), min(count, len(moments))), *always})
    print(f"MASKPLUGINS_FAULT_SEED={SEED} {name}: moments {chosen} of {len(moments)}")
    return chosen
