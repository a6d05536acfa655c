"""What a caught error keeps alive."""

import traceback


def forget_frames(error: BaseException) -> None:
    """Whoever keeps the error, or what it came of, shall not keep what the functions in its traceback had: sessions, lanes."""
    found = [error]
    for each in found:
        traceback.clear_frames(each.__traceback__)
        found += [other for other in (each.__cause__, each.__context__) if other is not None and other not in found]
