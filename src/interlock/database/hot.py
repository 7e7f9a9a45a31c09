"""Hot rows of an open lane, with their keys as they were written."""

import msgspec

from interlock.hotrow.signal.written import as_written
from interlock.lanes.contention import Contention, HotRow


def hot_rows(contention: Contention, now_s: float) -> list[HotRow]:
    """Return the rows with the most contention, worst first, with their keys as they were written."""
    return [
        msgspec.structs.replace(row, key=as_written(row.key, contention.key_types(row.table)))
        for row in contention.worst(now_s)
    ]
