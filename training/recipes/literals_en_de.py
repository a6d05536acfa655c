"""Invent addresses, names of files, amounts, dates and the like, as English and German write them, for mix_en_de.py."""

import random
import re
import string
from collections.abc import Callable, Sequence

Pair = tuple[str, str]
Draw = random.Random

WORDS = re.findall(
    r"\w+",
    """example sample house garden mail shop news blog web data home world city book music photo travel food health
    school bank car sport game video cloud support help contact info about login account search product order
    price team work job event map weather kitchen doctor hotel forum docs guide index page image report
    invoice letter list table summer winter birthday meeting final draft version""",
)
NAMES = re.findall(r"\w+", "anna max john mary peter laura smith mueller kim lee brown tom sara j m k")
MONTHS = re.findall(
    r"(\w+)=(\w+)",
    """January=Januar February=Februar March=März April=April May=Mai June=Juni July=Juli August=August
    September=September October=Oktober November=November December=Dezember""",
)
ENDINGS = ("com", "com", "com", "org", "net", "de", "co.uk", "io", "eu")
SUFFIXES = ("pdf", "docx", "xlsx", "txt", "jpg", "png", "py", "csv", "zip", "json", "html", "mp4", "md")
UNITS = (
    *((f" {unit}", f" {unit}") for unit in ("kg", "km", "cm", "GB", "ml", "mg", "km/h")),
    ("%", " %"),
    (" percent", " Prozent"),
    (" miles", " Meilen"),
    *((f" {unit}", " Pfund") for unit in ("lbs", "pounds")),
    (" inches", " Zoll"),
    (" kilometers", " Kilometer"),
    (" liters", " Liter"),
    (" degrees", " Grad"),
    *((unit, " °C") for unit in ("°C", " °C")),
    ("°F", " °F"),
    (" mph", " Meilen pro Stunde"),
    (" ounces", " Unzen"),
)
SIZES = (("2.5", "2,5"), *((str(size), str(size)) for size in range(2, 400)))


def same(make: Callable[[Draw], str]) -> Callable[[Draw], Pair]:
    """Return a maker of pairs whose sides are equal."""

    def pair(draw: Draw) -> Pair:
        text = make(draw)
        return text, text

    return pair


def digits(draw: Draw, count: int) -> str:
    return "".join(draw.choices(string.digits, k=count))


def path(draw: Draw, most: int) -> str:
    return "".join(f"/{draw.choice(WORDS)}" for _ in range(draw.randint(1, most)))


def host(draw: Draw) -> str:
    name = draw.choice(("", "", "-")).join(draw.sample(WORDS, draw.choice((1, 1, 2))))
    return f"{name}.{draw.choice(ENDINGS)}"


def url(draw: Draw) -> str:
    start = draw.choice(("https://", "https://", "https://www.", "http://", "www.", ""))
    end = draw.choice(
        ("", "", path(draw, 3), f"{path(draw, 2)}?{draw.choice('xqvp')}={digits(draw, 2)}", f"{path(draw, 1)}.html", "/")
    )
    return start + host(draw) + end


def email(draw: Draw) -> str:
    names = draw.sample((*NAMES, *WORDS), draw.choice((1, 1, 2)))
    return f"{draw.choice(('.', '_', '')).join(names)}{draw.choice(('', '', digits(draw, 2)))}@{host(draw)}"


def phone(draw: Draw) -> str:
    shape = draw.choice(
        (
            "+1 (5##) ###-####",
            "(###) ###-####",
            "###-###-####",
            "+49 ## #######",
            "+44 20 #### ####",
            "0### #######",
            "555-####",
            "+1-8##-###-####",
        )
    )
    return "".join(draw.choice(string.digits) if sign == "#" else sign for sign in shape)


def file(draw: Draw) -> str:
    name = draw.choice(("_", "-", "")).join(draw.sample(WORDS, draw.choice((1, 2)))) + draw.choice(
        ("", "", f"_{digits(draw, 2)}", digits(draw, 1))
    )
    name = f"{name}.{draw.choice(SUFFIXES)}"
    folder = draw.choice(("", "", "", path(draw, 2) + "/", f"C:\\{draw.choice(WORDS).title()}\\", "~/"))
    return folder + name


def code(draw: Draw) -> str:
    letters = "".join(draw.choices(string.ascii_uppercase, k=draw.randint(1, 3)))
    number = digits(draw, draw.randint(2, 5))
    return draw.choice(
        (
            letters + number,
            f"{letters}-{number}",
            number + letters,
            f"{letters}-{number}-{draw.choice(string.ascii_uppercase)}",
            f"#{number}",
            f"@{draw.choice(WORDS)}{number}",
        )
    )


def amount(draw: Draw, decimals: Sequence[int] = (0, 0, 2)) -> Pair:
    whole = draw.choice(
        (draw.randint(2, 99), draw.randint(100, 999), draw.randint(1_000, 99_999), draw.randint(100_000, 9_999_999))
    )
    places = draw.choice(decimals)
    text = f"{whole + draw.random():,.{places}f}" if places else f"{whole:,}"
    return text, text.translate(str.maketrans(",.", ".,"))


def thousands(draw: Draw) -> Pair:
    text = f"{draw.randrange(1_000, 10 ** draw.randint(4, 7)):,}"
    return text, text.replace(",", ".")


def decimal(draw: Draw) -> Pair:
    text = f"{draw.randint(0, 99)}.{draw.randint(1, 9)}"
    return text, text.replace(".", ",")


def price(draw: Draw) -> Pair:
    english, german = amount(draw)
    before, after = draw.choice((("$", " $"), ("$", " Dollar"), ("€", " €"), ("£", " £"), ("US$", " US-Dollar")))
    if draw.random() < 0.25:
        scale, scaled = draw.choice((("million", "Millionen"), ("billion", "Milliarden")))
        number = f"{draw.randint(2, 99)}{draw.choice(('', '.5', '.2'))}"
        return f"{before}{number} {scale}", f"{number.replace('.', ',')} {scaled}{after}"
    return f"{before}{english}", f"{german}{after}"


def measure(draw: Draw) -> Pair:
    english, german = amount(draw, (0, 1)) if draw.random() < 0.3 else draw.choice(SIZES)
    unit = draw.choice(UNITS)
    return english + unit[0], german + unit[1]


def date(draw: Draw) -> Pair:
    month, day, year = draw.randint(1, 12), draw.randint(1, 28), draw.randint(1900, 2035)
    english, german = MONTHS[month - 1]
    full = f"{day}. {german} {year}"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day not in (11, 12, 13) else 0, "th")
    return draw.choice(
        (
            (f"{month:02}/{day:02}/{year}", f"{day:02}.{month:02}.{year}"),
            (f"{month}/{day}/{year}", f"{day}.{month}.{year}"),
            (f"{english} {day}, {year}", full),
            (f"{english} {day}{ending}, {year}", full),
            (f"{day} {english} {year}", full),
            (f"{english} {day}", f"{day}. {german}"),
            (f"{english} {day}{ending}", f"{day}. {german}"),
            (f"{day} {english}", f"{day}. {german}"),
        )
    )


def time(draw: Draw) -> Pair:
    hour, minute = draw.randint(1, 12), draw.choice((0, 0, 15, 30, 45, draw.randint(1, 59)))
    afternoon = draw.random() < 0.5
    mark = draw.choice((" p.m.", " pm", "pm", " PM") if afternoon else (" a.m.", " am", "am", " AM"))
    german = hour % 12 + 12 * afternoon
    if minute:
        return f"{hour}:{minute:02}{mark}", f"{german}:{minute:02} Uhr"
    return f"{hour}{draw.choice((':00', ''))}{mark}", f"{german} Uhr"


LITERALS: dict[str, Callable[[Draw], Pair]] = {
    "url": same(url),
    "email": same(email),
    "phone": same(phone),
    "file": same(file),
    "code": same(code),
    "thousands": thousands,
    "decimal": decimal,
    "amount": amount,
    "price": price,
    "measure": measure,
    "date": date,
    "time": time,
}
COPIED = ("url", "email", "file", "code")  # may replace technical terms
