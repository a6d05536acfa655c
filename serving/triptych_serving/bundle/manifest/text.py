"""The manifest of a text encoder: the BERT family."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from triptych_serving.bundle.fields import JsonFields
from triptych_serving.bundle.manifest.base import Graph, Manifest, check_common, check_names, parse_common

FILL_MASK = "fill-mask"
TEXT_CLASSIFICATION = "text-classification"
TOKEN_CLASSIFICATION = "token-classification"
QUESTION_ANSWERING = "question-answering"
TEXT_EMBEDDING = "text-embedding"
TEXT_TASKS = (FILL_MASK, TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION, QUESTION_ANSWERING, TEXT_EMBEDDING)
LABELLED_TASKS = (TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION)
DECODER_TASKS = (*LABELLED_TASKS, TEXT_EMBEDDING)  # of decoder-only models, whose texts may have nothing around them
MEAN, CLS = "mean", "cls"
POOLINGS = (MEAN, CLS)
SIMPLE = "simple"
TEXT_PLACE, PAIR_PLACES = "{text}", ("{query}", "{document}")  # of a text, and of a pair, in a template
PLACE = re.compile(f"({'|'.join(map(re.escape, (TEXT_PLACE, *PAIR_PLACES)))})")
AGGREGATIONS = ("none", SIMPLE, "first", "average", "max")


@dataclass(frozen=True)
class TextTokens:
    """Ids of the special tokens; without `cls`, `sep` is the only one around a text, and without `sep` there is none."""

    pad: int
    cls: int | None
    sep: int | None
    mask: int


@dataclass(frozen=True)
class TextLimits:
    """Lengths in tokens, including [CLS] and [SEP]; texts of one run, 0: any number."""

    max_tokens: int
    max_rows: int = 0


@dataclass(frozen=True)
class TextManifest(Manifest):
    """Manifest of a text encoder. Members besides the common ones:

    tokens                pad, cls, sep, mask: ids; without cls, texts of decoder-only models have sep alone around them, and
                          without sep nothing
    limits                max_tokens: [CLS] and [SEP] included; max_rows (optional): the graph takes no more texts at once
    hidden_size           length of a text's vector
    labels                names of the classes, in the graph's order; classification tasks alone
    next_sentence         (fill-mask, optional) the graph says whether a second text follows the first
    pairs                 (text-classification, optional) the inputs are pairs of texts
    singles               (text-classification with pairs, optional) the inputs may be single texts as well
    template              (text-embedding, and text-classification with pairs, optional) what is tokenized: of a text one with
                          {text}, of a pair one with {query} and {document}, or one with each; tokenizer.json adds the rest
    prompts               (text-embedding, optional) texts that callers may put before theirs, by name
    vectors               (optional) false: the graph has no `mean` and `cls`
    logits                (text-classification, optional) the graph has the labels' logits besides their probabilities
    regression            (text-classification with logits, optional) labels are quantities: their scores are always logits
    aggregation           (token-classification, optional) how entities are made unless a request says otherwise: "simple", ...
    pair_bytes            (optional) memory that a run takes for every pair of a text's tokens
    causal_head           (optional) size of a head of a decoder-only model's attention; with native kernels it takes no memory
                          for pairs
    similarities          (text-embedding, optional) the graph has `similarities` of a sum of tokens to all tokens
    states                (text-embedding, optional) the graph has `states`, the vectors of all tokens
    pooling, normalize    (optional) how a text's vector is made unless a request says otherwise: "mean" or "cls"; to length 1.
                          The graph of a decoder-only model has the last token's state as `cls`
    """

    precisions: Mapping[str, Graph]
    tokens: TextTokens
    limits: TextLimits
    hidden_size: int
    labels: tuple[str, ...] = ()
    next_sentence: bool = False
    pairs: bool = False
    singles: bool = False
    template: tuple[str, ...] = ()
    logits: bool = False
    regression: bool = False
    aggregation: str = SIMPLE
    pair_bytes: int = 0
    causal_head: int = 0
    similarities: bool = False
    states: bool = False
    pooling: str = MEAN
    normalize: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    vectors: bool = True


def parse_text(fields: JsonFields) -> TextManifest:
    """Read and check the manifest; errors are added to the fields' faults."""
    tokens, task, limits = fields.object("tokens"), fields.values.get("task"), fields.object("limits")
    optional = {name for name in ("cls", "sep") if task in DECODER_TASKS and name not in tokens.values}
    manifest = TextManifest(
        **parse_common(fields),
        precisions=fields.records("precisions", Graph),
        tokens=TextTokens(
            tokens.natural("pad"),
            None if "cls" in optional else tokens.natural("cls"),
            None if "sep" in optional else tokens.natural("sep"),
            tokens.natural("mask"),
        ),
        limits=TextLimits(limits.positive("max_tokens"), limits.get("max_rows", int, 0)),
        hidden_size=fields.positive("hidden_size"),
        labels=fields.strings("labels") if task in LABELLED_TASKS else (),
        next_sentence=task == FILL_MASK and fields.get("next_sentence", bool, False),
        pairs=task == TEXT_CLASSIFICATION and fields.get("pairs", bool, False),
        singles=task == TEXT_CLASSIFICATION and fields.get("singles", bool, False),
        template=fields.strings("template") if "template" in fields.values else (),
        logits=task == TEXT_CLASSIFICATION and fields.get("logits", bool, False),
        regression=task == TEXT_CLASSIFICATION and fields.get("regression", bool, False),
        aggregation=fields.choice("aggregation", AGGREGATIONS, SIMPLE),
        pair_bytes=fields.positive("pair_bytes") if "pair_bytes" in fields.values else 0,
        causal_head=fields.positive("causal_head") if "causal_head" in fields.values else 0,
        similarities=task == TEXT_EMBEDDING and fields.get("similarities", bool, False),
        states=task == TEXT_EMBEDDING and fields.get("states", bool, False),
        pooling=fields.choice("pooling", POOLINGS, MEAN),
        normalize=fields.get("normalize", bool, False),
        prompts=fields.texts("prompts") if task == TEXT_EMBEDDING else {},
        vectors=fields.get("vectors", bool, True),
    )
    if manifest.template and not _is_template(manifest):
        expected = "{text} for text-embedding, {query} and {document} in one text or two for pairs without singles"
        fields.faults.append(f"template is {list(manifest.template)!r:.80}, expected {expected}")
    if manifest.regression and not manifest.logits:
        fields.faults.append("regression needs logits, which the graph does not have")
    check_common(manifest, {"tokenizer.json"}, fields.faults)
    if task in LABELLED_TASKS and isinstance(fields.values.get("labels"), list):
        check_names("labels", manifest.labels, fields.faults)
    return manifest


def _is_template(manifest: TextManifest) -> bool:
    places = [PLACE.findall(text) for text in manifest.template]
    if manifest.task == TEXT_EMBEDDING:
        return places == [[TEXT_PLACE]]
    return manifest.pairs and not manifest.singles and places in ([[*PAIR_PLACES]], [[place] for place in PAIR_PLACES])
