"""YAML by its grammar: what parsers convert, nest and look up, which mutated bytes hardly reach.

Owns the parts (escapes, directives, tags, anchors, block scalars, numbers of thousands of digits)
and how they are put together. All chance comes from the `Random` that is handed in.
"""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from dlsched.config.job_schema import JobKeys

_HEX = "0123456789abcdefABCDEF"
_LONG = ("9" * 5000, "0x" + "f" * 5000, "1" * 400 + "." + "3" * 5000, "1:" * 2000 + "30")
"""Beyond what Python converts to a whole number unasked (4,300 digits)."""
_ESCAPED = ("\\0", "\\x00", "\\e", "\\N", "\\_", "\\L", "\\P", "\\uD800", "\\uDFFF", "\\q", "\\ ",
            "\\U00110000", "\\UFFFFFFFF", "\\U7FFFFFFF", "\\U0010FFFF", "\\uFFFE",
            "\\\n  ")  # fmt: skip
_DIRECTIVES = ("%YAML 1.1", "%YAML 1.2", "%YAML 2.0", "%YAML 1.", "%YAML", "%TAG ! tag:x,2000:",
               "%TAG !a! !b-", "%TAG", "%RESERVED a b", "%")  # fmt: skip
_TAGS = ("!!str ", "!!int ", "!!float ", "!!null ", "!!binary ", "!!timestamp ", "!!set ", "!a!b ",
         "!<tag:yaml.org,2002:int> ", "!%FF ", "!%C0%80 ", "!%ED%A0%80 ",
         "!!python/name:os.system ", "! ", "!<> ")  # fmt: skip
_PLAIN = ("a", "1", "-0", "1.5", "1e3", ".inf", "~", "yes", "010", "0o7", "2001-01-01", "=", "<<",
          "'it''s'", "\u00e9", "\U0001f600", "a b", "a: b", "#", "@", "`", "%", "50ms")  # fmt: skip

_JOB_KEYS = tuple(JobKeys.model_fields)


def document(rng: Random, keys: tuple[str, ...] = ()) -> bytes:
    """A document, mostly a mapping of some of these keys, and mostly such that a parser gets to its
    end."""
    text = ""
    if rng.random() < 0.25:
        text += "".join(f"{_directive(rng)}\n" for _ in range(rng.randrange(1, 3))) + "--- \n"
    for _ in range(rng.randrange(1, 5)):
        key = rng.choice(keys) if keys and rng.random() < 0.8 else _scalar(rng)
        text += f"{key}: {_node(rng, 0)}\n"
    if rng.random() < 0.1:
        text += rng.choice(("...\n", "---\na: 1\n", "%YAML 1.1\n", "? ", "\t", "\ufeff"))
    return text.encode("utf-8", "surrogatepass")


def _directive(rng: Random) -> str:
    directive = rng.choice(_DIRECTIVES)
    if directive.endswith(".") or rng.random() < 0.2:
        directive += rng.choice(("1", "1" * 400, "9" * 5000, "-1", "x"))
    return directive


def _node(rng: Random, depth: int) -> str:
    lead = ""
    if rng.random() < 0.1:
        lead += rng.choice(("&a ", "&b ", f"&{'a' * 300} ", "& ", "*a", "*b "))
    if rng.random() < 0.1:
        lead += rng.choice(_TAGS)
    kind = rng.random()
    if kind < 0.15 and depth < 20:
        inner = ", ".join(_node(rng, depth + 1) for _ in range(rng.randrange(4)))
        return f"{lead}[{inner}]"
    if kind < 0.30 and depth < 20:
        inner = ", ".join(
            f"{_scalar(rng)}: {_node(rng, depth + 1)}" for _ in range(rng.randrange(4))
        )
        return f"{lead}{{{inner}}}"
    if kind < 0.40:
        return lead + _block(rng)
    return lead + _scalar(rng)


def _block(rng: Random) -> str:
    """A literal or folded block: it belongs at the end of a line."""
    head = rng.choice("|>") + rng.choice(("", "-", "+", "1", "2-", "+9", "0", "10", "1" * 5000))
    pad = " " * rng.choice((1, 2, 9))
    lines = rng.choices(("a", "", " b", "\u2028", "# no comment", "---", "é" * 200), k=3)
    return head + "".join(f"\n{pad}{line}" for line in lines)


def _scalar(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        parts = rng.choices(("a", " ", "\u00e9", *_ESCAPED, _escape(rng)), k=rng.randrange(1, 5))
        return '"' + "".join(parts) + '"'
    if kind < 0.40:
        return rng.choice(("", "-", "+")) + rng.choice(_LONG)
    if kind < 0.45:
        return "'" + rng.choice(("", "''", "\n\n  a", "\\U00110000", "x" * 2000)) + "'"
    return rng.choice(_PLAIN)


def _escape(rng: Random) -> str:
    """`\\x`, `\\u` or `\\U`, sometimes with a digit too few."""
    name, digits = rng.choice((("x", 2), ("u", 4), ("U", 8)))
    digits -= rng.random() < 0.1
    return f"\\{name}" + "".join(rng.choices(_HEX, k=digits))


JOB_FILES = st.randoms(use_true_random=False).map(lambda rng: document(rng, _JOB_KEYS))
"""Documents with the keys of a job file, for properties."""
