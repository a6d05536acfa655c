"""Plural forms by language: those of gettext, and the categories of CLDR (Unicode's Common Locale Data Repository)."""

import re

from triptych_text.languages import primary_language

_ONE = "nplurals=1; plural=0;"
_TWO = "nplurals=2; plural=(n != 1);"
_FRENCH = "nplurals=2; plural=(n > 1);"
_RUSSIAN = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);"
_CZECH = "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;"
_FORMS = {
    "id ja ko lo ms my th vi zh": _ONE,
    "ak am bn fa fr hi hy ln mg oc pa pt-br ti tr uz wa zu": _FRENCH,
    "be bs hr ru sr uk": _RUSSIAN,
    "cs sk": _CZECH,
    "ar": "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);",
    "cy": "nplurals=4; plural=(n==1) ? 0 : (n==2) ? 1 : (n != 8 && n != 11) ? 2 : 3;",
    "ga": "nplurals=5; plural=(n==1 ? 0 : n==2 ? 1 : n<7 ? 2 : n<11 ? 3 : 4);",
    "is": "nplurals=2; plural=(n%10!=1 || n%100==11);",
    "lt": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2);",
    "lv": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);",
    "mk": "nplurals=2; plural=(n%10==1 && n%100!=11) ? 0 : 1;",
    "mt": "nplurals=4; plural=(n==1 ? 0 : n==0 || (n%100>1 && n%100<11) ? 1 : (n%100>10 && n%100<20) ? 2 : 3);",
    "pl": "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);",
    "ro": "nplurals=3; plural=(n==1 ? 0 : (n==0 || (n%100 > 0 && n%100 < 20)) ? 1 : 2);",
    "sl": "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);",
}
_BY_LANGUAGE = {language: form for languages, form in _FORMS.items() for language in languages.split()}
_COUNT = re.compile(r"\s*nplurals\s*=\s*([1-9])\s*;\s*plural\s*=")


def plural_forms(language: str) -> str:
    """Return the Plural-Forms of a language (BCP 47); of an unknown one those of English."""
    wanted = language.lower().replace("_", "-")
    return _BY_LANGUAGE.get(wanted) or _BY_LANGUAGE.get(wanted.partition("-")[0], _TWO)


def count(plural_forms: str) -> int | None:
    """Return the number of plural forms that a value declares; None for a template."""
    found = _COUNT.match(plural_forms)
    return int(found[1]) if found else None


_CATEGORIES = {  # beside "other", which every language has; CLDR 46 without "many" for millions in Romance languages
    "bo dz id ig ii in ja jv ko lo ms my sg su th to vi wo yo yue zh": "",
    "iu iw he se": "one two",
    "bs hr ro sh sr": "few one",
    "be cs lt pl ru sk uk": "few many one",
    "dsb gd hsb sl": "few one two",
    "br ga gv mt": "few many one two",
    "ksh lv prg": "one zero",
    "ar cy kw": "few many one two zero",
}
_NAMED = {language: names.split() for languages, names in _CATEGORIES.items() for language in languages.split()}


def plural_categories(language: str) -> frozenset[str]:
    """Return the plural categories of a language (BCP 47); of an unknown one those of English."""
    return frozenset(["other", *_NAMED.get(primary_language(language), ["one"])])
