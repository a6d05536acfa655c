"""What HTML's elements and attributes are to a translator (HTML Living Standard, sections 3.2.6.3, 4 and 15.3)."""


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


VOID = _names("area base br col embed frame hr img input link meta param source track wbr")  # have no end

# Elements that text does not run across: blocks, cells, items, and controls with a text of their own.
BLOCKS = _names(
    "address article aside blockquote body button caption center col colgroup dd details dialog dir div dl dt fieldset"
    " figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html label legend li main"
    " menu menuitem nav noframes noscript ol optgroup option p pre search section select summary table tbody td"
    " template textarea tfoot th thead title tr track ul"
)
KEPT = _names("code kbd samp tt var pre textarea")  # content that is not language, unless translate="yes"
OPAQUE = _names("iframe math noembed object plaintext script style svg xmp")  # nothing inside is looked at
UNSEEN = _names("iframe noembed script style svg")  # of these: what shows no text

# What an element's start ends that has no end tag (section 13.1.2.4).
_TEXTS = frozenset({"p"})
ENDS: dict[str, frozenset[str]] = {
    "li": frozenset({"li", "p"}),
    "dt": frozenset({"dt", "dd", "p"}),
    "dd": frozenset({"dt", "dd", "p"}),
    "option": frozenset({"option"}),
    "optgroup": frozenset({"option", "optgroup"}),
    "td": frozenset({"td", "th", "p"}),
    "th": frozenset({"td", "th", "p"}),
    "tr": frozenset({"td", "th", "tr", "p"}),
    "tbody": frozenset({"td", "th", "tr", "thead", "tbody", "p"}),
    "tfoot": frozenset({"td", "th", "tr", "thead", "tbody", "p"}),
    **dict.fromkeys(
        _names(
            "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer form h1 h2 h3"
            " h4 h5 h6 header hgroup hr main menu nav ol p pre search section table ul"
        ),
        _TEXTS,
    ),
}

TEXTS = _names("alt aria-description aria-label aria-placeholder aria-roledescription aria-valuetext placeholder title")
BUTTONS = frozenset({"button", "reset", "submit"})  # types of <input> whose value is shown
META = _names(
    "application-name apple-mobile-web-app-title description keywords og:description og:image:alt og:site_name og:title"
    " subject twitter:description twitter:image:alt twitter:title"
)


def is_text(element: str, attribute: str, others: dict[str, str]) -> bool:
    """Whether people read the value of this attribute of an element with these attributes."""
    if attribute == "content":
        return element == "meta" and (others.get("name") or others.get("property", "")).strip().lower() in META
    if attribute == "value":
        return element == "input" and others.get("type", "").strip().lower() in BUTTONS
    if attribute == "label":
        return element in ("option", "optgroup", "track")
    if attribute == "summary":
        return element == "table"
    return attribute in TEXTS and not (attribute == "title" and element in ("link", "style"))
