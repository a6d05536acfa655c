"""Readers of members of config.json that several architectures share."""

from collections.abc import Mapping

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.generation import MEMBERS
from triptych_export.huggingface.folder import CONFIG, Folder, Neutral, neutral
from triptych_training.models.blocks import XIELU

# Suffixes of Hugging Face's class names.
BARE, MASKED, PRETRAINING = "Model", "ForMaskedLM", "ForPreTraining"
CAUSAL = "ForCausalLM"
TEXT, TOKENS, ANSWER = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"

# Members that matter in training alone: how often values are left out, and how weights are drawn.
TRAINING = """
dropout dropout_rate activation_dropout attention_dropout hidden_dropout residual_dropout embedding_dropout mlp_dropout
pooler_dropout cls_dropout classif_dropout classifier_dropout seq_classif_dropout qa_dropout resid_dropout embed_dropout
summary_first_dropout summary_last_dropout hidden_dropout_prob attention_probs_dropout_prob classifier_dropout_prob
attn_pdrop embd_pdrop resid_pdrop layerdrop encoder_layerdrop decoder_layerdrop
initializer_range initializer_factor initializer_cutoff_factor init_std init_method
"""
COMMON = neutral(
    """
    _name_or_path _model_name_or_path _commit_hash _attn_implementation_autoset architectures auto_map model_type
    tokenizer_class transformers_version use_cache output_past output_attentions output_hidden_states return_dict torchscript
    use_bfloat16 dtype torch_dtype _flash_attn_2_enabled
    gradient_checkpointing chunk_size_feed_forward tf_legacy_loss finetuning_task task_specific_params
    label2id id2label num_labels _num_labels problem_type language name custom_pipelines transformers.js_config
    unsloth_fixed unsloth_version
    bos_token_id eos_token_id pad_token_id cls_token_id sep_token_id unk_token_id decoder_start_token_id
    """
    + " ".join((TRAINING, *MEMBERS)),
    is_decoder=(False,),
    add_cross_attention=(False,),
    cross_attention_hidden_size=(None,),
    tie_encoder_decoder=(False,),
    pruned_heads=({},),
)
ENCODER = {
    **COMMON,
    **neutral(
        # What sentence-transformers does to a cross-encoder's logit; requests choose the logit or its sigmoid.
        "sentence_transformers sbert_ce_default_activation_function",
        is_encoder_decoder=(False,),
    ),
}
ENCODER_DECODER = {**COMMON, **neutral("prefix", is_encoder_decoder=(True,))}


def check_members(folder: Folder, table: Neutral, ours: bool = False) -> None:
    """Reject members of the folder's JSON files that are neither read, nor known to be neutral, nor ignored on request.

    `table` has the neutral members of config.json; those of the other files are in the folder's `closed`. In folders
    that triptych_training wrote (`ours`) none can be ignored.

    Raises:
        SourceError: names the members with their values; or one of those to ignore is not among them.
    """
    faults = {
        (file, name): f"{name}: {value!r:.60} is not supported"
        + (f"; supported: {' or '.join(map(repr, known[name]))}" if name in known else ", and may change the results")
        for file, members, known in ((CONFIG, folder.config.unread, table), *folder.closed)
        for name, value in members.items()
        if value is not None and (name not in known or (known[name] and value not in known[name]))
    }
    names = [name for _, name in faults]
    for name in folder.ignored:
        if name not in names:
            raise folder.config_error(f"ignore_config: {name!r} is not an unsupported member; there are: {names}")
    if rest := {place: fault for place, fault in faults.items() if place[1] not in folder.ignored}:
        files = dict.fromkeys(file for file, _ in rest)
        texts = [f"{folder.path / each}: {'; '.join(rest[place] for place in rest if place[0] == each)}" for each in files]
        remedy = " ".join(f"--ignore-config {name}" for name in dict.fromkeys(name for _, name in rest))
        raise SourceError(f"{'; '.join(texts)}; {'leave them out' if ours else f'to export all the same: {remedy}'}")


ACTIVATIONS: Mapping[str, str] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "gelu_quick",
    "silu": "silu",
    "swish": "silu",
    "relu2": "relu_squared",
}
SINGLE_LABEL, MULTI_LABEL, REGRESSION = "single_label_classification", "multi_label_classification", "regression"


def activation(folder: Folder, member: str, default: str = "gelu") -> str:
    """Translate the activation named in config.json to our name; raises SourceError if the activation is not supported."""
    name = folder.config.get(member)
    name = default if name is None else name
    known = {**ACTIVATIONS, XIELU: XIELU} if default == XIELU else ACTIVATIONS  # the others have no rules for its weights
    if not isinstance(name, str) or name not in known:
        raise folder.config_error(f"{member}: {name!r} is not supported; supported: {', '.join(known)}")
    return known[name]


def integer(folder: Folder, name: str, default: int | None = None) -> int:
    """Read an integer of config.json; raises SourceError if the member is missing without a default, or is not an integer."""
    value = folder.config.get(name)
    value = default if value is None else value
    if type(value) is not int:
        raise folder.config_error(f"{name}: {value!r}, expected a whole number")
    return value


def flag(folder: Folder, name: str, default: bool) -> bool:
    """Read true or false of config.json; raises SourceError if the member is anything else."""
    value = folder.config.get(name)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise folder.config_error(f"{name}: {value!r:.60}, expected true or false")
    return value


def check_architecture(folder: Folder, *supported: str, required: bool = False) -> None:
    """Reject a folder whose saved class is not among `supported`; if `required`, also one that names no class.

    Raises:
        SourceError: names the class found and those supported.
    """
    if folder.architecture not in (*supported, *(() if required else ("",))):
        found, known = folder.architecture_fault, ", ".join(dict.fromkeys(supported))
        raise folder.config_error(f"{found}; supported of {folder.model_type}: {known}")
