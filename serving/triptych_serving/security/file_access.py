"""Who may read and write a file of secrets."""

import logging
import stat
from pathlib import Path

logger = logging.getLogger(__name__)


def warn_if_open(path: Path) -> None:
    """Log a warning where all users of the machine may read or change a file; one that is not there is none."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    allowed = [word for bit, word in ((stat.S_IROTH, "read"), (stat.S_IWOTH, "change")) if mode & bit]
    if allowed:
        logger.warning(
            "%s: every user of this machine may %s it; chmod 600 leaves it to its owner", path, " and ".join(allowed)
        )
