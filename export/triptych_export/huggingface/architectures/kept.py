"""Generative models of unknown architectures, of which there are ONNX files that are served as they are."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from triptych_export.generation_source import GenerationSource
from triptych_export.huggingface.architectures import decoders
from triptych_export.huggingface.chat import read_chat
from triptych_export.huggingface.checkpoint import seq2seq
from triptych_export.huggingface.checkpoint.generation import read_generation
from triptych_export.huggingface.checkpoint.languages import text_to_text
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.tokenizers.tokenizer import (
    TranslationTokenizers,
    decoder_tokenizer,
    end_texts,
    is_bare,
    limit_tokens,
    translation_tokenizers,
)
from triptych_export.onnx_files.decoder import WITH_PAST, OnnxGpt, OnnxSeq2Seq
from triptych_export.translation_source import TranslationSource

LONGEST = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "n_ctx", "seq_length")
RELATIVE, UNLIMITED = "relative_attention_num_buckets", 2_048  # relative positions have no limit; this one saves memory


def keep_files(
    folder: Folder, files: Sequence[Path], source_language: str = "", target_language: str = ""
) -> TranslationSource | GenerationSource:
    """Take the ONNX files of a generative model as they are, whatever its architecture.

    Args:
        folder: config.json and the tokenizer.
        files: ONNX files in Optimum's layout, the decoder first, then that of an encoder.
        source_language: for encoder-decoders, a name for their only source language; empty: undetermined.
        target_language: the same for targets.

    Raises:
        SourceError: files are missing, damaged or contradict each other, or something is not supported.
    """
    limit = next((int(size) for name in LONGEST if (size := folder.config.get(name))), 0)
    limit = limit or (UNLIMITED if RELATIVE in folder.config else 0)
    if not limit:
        raise folder.config_error(f"none of {', '.join(LONGEST)} says how long a text may be")
    if len(files) > 1:
        return _keep_seq2seq(folder, files, limit, source_language, target_language)
    beside = files[0].with_name(WITH_PAST)
    width, heads = (folder.config.get(name) or 0 for name in ("hidden_size", "num_attention_heads"))
    model = OnnxGpt(beside if beside.is_file() else files[0], limit, folder.config.get("head_dim") or width // (heads or 1))
    tokenizer = limit_tokens(decoder_tokenizer(folder), model.config.vocabulary_size)
    return decoders.make_source(folder, model, tokenizer, *read_chat(folder))


def _keep_seq2seq(folder: Folder, files: Sequence[Path], limit: int, source: str, target: str) -> TranslationSource:
    settings = read_generation(folder, limit, {})
    start, [end] = settings.start, settings.ends
    assert start is not None, "an encoder-decoder's decoder has a first input"
    if folder.has("source.spm"):  # Marian's tokenizers, of which each side may have one
        made = translation_tokenizers(folder)
    else:
        made = TranslationTokenizers(own := decoder_tokenizer(folder), frame=own.encode("").ids)
        if is_bare(folder, own):
            made = replace(made, target=decoder_tokenizer(folder), bare=True)
        ended = made.target or own
        end_texts(ended, str(ended.id_to_token(end)), end)
    before = made.before(folder, end)
    languages = text_to_text(before, settings.first_token).choose(source, target)
    try:
        model = OnnxSeq2Seq(files, limit, (settings.pad, start, end))
    except ValueError as error:
        raise folder.config_error(str(error)) from error
    return seq2seq.make_source(folder, model, made, languages, settings)
