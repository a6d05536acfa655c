"""Scripts whose words have no spaces between them."""

import re

# Thai and Lao, Burmese, Khmer, Japanese, Chinese: for a class of a regular expression.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

_UNSPACED = re.compile(f"[{UNSPACED}]")


def is_unspaced(sign: str) -> bool:
    """Whether a character is of such a script."""
    return _UNSPACED.match(sign) is not None
