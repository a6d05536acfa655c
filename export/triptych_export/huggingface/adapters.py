"""PEFT adapters, such as LoRA: merged into their base model in float32, which gives a folder like any other checkpoint.

peft and transformers load and merge them. Source: https://huggingface.co/docs/peft
"""

import importlib
import pickle
import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from triptych.extras import install_command
from triptych_export.errors import SourceError
from triptych_export.huggingface.chat import TEMPLATES, has_template
from triptych_export.huggingface.checkpoint.sentence_transformers import MODULES
from triptych_export.huggingface.folder import ADAPTER, CONFIG, WANTED, Folder, one_line, open_folder, pointer_remedy
from triptych_export.huggingface.tokenizers.special_tokens import CONFIG as TOKENIZER_CONFIG

# transformers' class of the base model, by the adapter's task; without a task, the adapter names the class.
AUTO_CLASSES = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoModel",
}
CLASSIFIER = re.compile(r"\.(classifier|score)(\.out_proj)?\.weight$")  # the adapter's own, `[labels, width]`
HEAD = re.compile(r"\.(classifier|score|qa_outputs)\.")
UNREPEATABLE = {  # by member of the settings: values, and why such adapters cannot be merged
    "init_lora_weights": (
        r"pissa_niter_\d+$",
        "it changed the base model at random; save the adapter with path_initial_model_for_weight_conversion",
    ),
    "layer_replication": (r"\[", "its copies of layers share weights, so that changes of one cannot be merged"),
}
LORA = re.compile(r"\.lora_")  # after a module's name
PREFIX = "base_model.model."  # of names of weights in adapters
TABLES = ("weight", "base_layer.weight", "token_adapter.base_layer.weight")  # of whole embeddings in an adapter
COPIES = re.compile(r"\.(modules_to_save|original_module|base_layer)\.(weight|bias)$")  # of what is also under its own name
COUNT = ".ranknum.default"  # of AdaLoRA's ranks: a number that its settings give, and no weight
COPIED = [pattern for pattern in WANTED if not pattern.endswith((".safetensors", ".bin"))]


@dataclass(frozen=True)
class MergedFolder(Folder):
    """Checkpoint folder made of an adapter and its base model."""

    adapter: Path = Path()
    base: Path = Path()

    @property
    def weights(self) -> tuple[Path, ...]:
        """The adapter's own file of weights."""
        return tuple(sorted(self.adapter.glob("adapter_model.*")))

    def load_unmerged(self) -> Any:
        """Load the base model with the adapter beside it, as transformers and peft run it; float32, for evaluation.

        Raises:
            SourceError: peft is missing, it cannot load base model or adapter, or the adapter is of another base model.
        """
        try:
            peft, transformers = importlib.import_module("peft"), importlib.import_module("transformers")
        except ImportError as error:
            raise SourceError(f"{self.adapter}: PEFT adapters need {error.name}; run: {install_command('peft')}") from error
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        settings = Folder(self.adapter).members(ADAPTER)
        for member, (value, fault) in UNREPEATABLE.items():
            if re.match(value, str(given := settings.get(member))):
                raise SourceError(f"{self.adapter / ADAPTER}: {member}: {given!r:.60} is not supported: {fault}")
        weights = self._read_weights(peft)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                config = peft.PeftConfig.from_pretrained(str(self.adapter))
                base, new = _open_base(transformers, self.adapter, self.base, settings, weights)
                weights = _renamed(base, weights)
                if modules := {LORA.split(name.removeprefix(PREFIX))[0] for name in weights if LORA.search(name)}:
                    config.target_modules = modules
                config.inference_mode = True
                if not (config.is_prompt_learning or any(map(HEAD.search, weights))):  # the head is the base model's
                    config.task_type = None
                model = peft.get_peft_model(base, config)
                loaded = peft.set_peft_model_state_dict(model, dict(weights))
            except Exception as error:  # whatever the libraries raise
                fault = f"peft cannot load it with base model {self.base}: {one_line(error)}"
                remedy = next(filter(None, map(pointer_remedy, sorted(self.base.glob("*.safetensors")))), "")
                raise SourceError(f"{self.adapter}: {fault}{remedy}") from error
        if config.is_prompt_learning:
            raise SourceError(f"{self.adapter}: {settings['peft_type']} changes no weights, and cannot be merged into a model")
        # VeRA's matrices, which its layers share, are buffers.
        places = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
        filled = {id(tensor) for name, tensor in places.items() if name not in loaded.missing_keys}  # also under other names
        left = [name for name in loaded.unexpected_keys if not COPIES.search(name)]
        left = [name for name in left if id(places.get(f"{name}.default")) not in filled]
        own = [name for name in loaded.missing_keys if ".default" in name and not name.endswith(COUNT)]
        lacking = [name for name in own if id(places.get(name)) not in filled]
        if unknown := [*left, *lacking]:
            fault = f"{len(unknown)} weights of it, such as {unknown[0]}, do not fit {self.base}"
            raise SourceError(f"{self.adapter}: {fault}; name its base model with --base-model")
        if missing := sorted({f"{PREFIX}{name}" for name in new} - weights.keys()):
            fault = f"{len(missing)} weights are neither in it nor in {self.base}, such as {missing[0].removeprefix(PREFIX)}"
            raise SourceError(f"{self.adapter}: {fault}; peft does not save them unless modules_to_save names them")
        return model.eval()

    def _read_weights(self, peft: Any) -> Mapping[str, Any]:
        """Read the adapter's own weights, of a pickle nothing else; raises SourceError if they are missing or damaged."""
        if not self.weights:
            there = ", ".join(sorted(path.name for path in self.adapter.iterdir()))
            raise SourceError(f"{self.adapter}: holds no adapter_model.safetensors or adapter_model.bin; there are: {there}")
        path = self.weights[-1]  # as in peft: safetensors take precedence
        try:
            weights: Mapping[str, Any] = peft.utils.load_peft_weights(str(self.adapter), device="cpu")
        except pickle.UnpicklingError as error:
            raise SourceError(f"{path}: holds more than weights, or is damaged: pickles are loaded weights-only") from error
        except Exception as error:  # whatever the libraries raise
            raise SourceError(f"{path}: is damaged or cut short ({one_line(error)}){pointer_remedy(path)}") from error
        return weights


def merge_adapter(folder: Folder, base_model: str, target: Path) -> MergedFolder:
    """Merge the adapter of `folder` into its base model, and write the result to the new folder `target`.

    `base_model` is a folder or a model's name on the hub; empty: the one that adapter_config.json names. Files of the adapter's
    folder, such as its tokenizer, take precedence over those of the base model.

    Raises:
        SourceError: the base model cannot be opened, or the adapter cannot be merged.
    """
    settings = folder.members(ADAPTER)
    base = _base_folder(folder, settings, base_model)
    origin = {**folder.origin, "base_model": base.origin.get("checkpoint_revision", base.path.name)}
    merged = MergedFolder(target, origin, adapter=folder.path, base=base.path)
    unmerged, kind = merged.load_unmerged(), settings.get("peft_type")
    try:
        with warnings.catch_warnings(action="ignore"):  # that tables are no longer tied
            model = unmerged.merge_and_unload(safe_merge=True)
    except Exception as error:  # whatever the library raises
        raise SourceError(f"{folder.path}: adapters of type {kind} cannot be merged: {one_line(error)}") from error
    target.mkdir(parents=True)
    try:
        model.save_pretrained(target)
    except SafetensorError as error:
        fault = f"the merged model cannot be written to {target.parent.parent}: {one_line(error)}"
        raise SourceError(f"{folder.path}: {fault}; free space there, or write to another --out") from error
    # The folders' own files replace what transformers has written beside the weights.
    for place in (base.path, folder.path):
        for path in sorted({path for pattern in COPIED for path in place.glob(pattern)} - _superseded(place, folder, model)):
            if path.name not in (ADAPTER, CONFIG) or path.parent != place:
                (target / path.relative_to(place)).parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target / path.relative_to(place))
        for path in place.glob("*_Dense"):
            shutil.copytree(path, target / path.name, dirs_exist_ok=True)
    return merged


def _superseded(place: Path, adapter: Folder, model: Any) -> set[Path]:
    """List the files of a base model's folder that the adapter replaces, beside those of the same name, and indices of weights.

    Settings of a tokenizer are in several files, and each version of transformers writes others.
    """
    names = {path.name for path in place.glob("*.index.json")}
    if place != adapter.path:
        own = adapter.read_json(TOKENIZER_CONFIG)
        if own is not None:
            names |= {"special_tokens_map.json", "added_tokens.json"}
        if has_template(adapter):
            names |= set(TEMPLATES)
        if model.base_model is not model:  # of a sentence encoder, and this has another head
            names.add(MODULES)
    return {place / name for name in names}


def _base_folder(folder: Folder, settings: Mapping[str, Any], base_model: str) -> Folder:
    """Open the base model."""
    name = base_model or settings.get("base_model_name_or_path")
    if not name or not isinstance(name, str):
        raise SourceError(f"{folder.path / ADAPTER}: names no base model; name it with --base-model")
    revision = "" if base_model or Path(name).is_dir() else str(settings.get("revision") or "")
    try:
        base = open_folder(name, revision)
        config = base.config  # raises SourceError if it is no checkpoint
    except SourceError as error:
        remedy = "" if base_model else f", named by {folder.path / ADAPTER}; name another with --base-model"
        raise SourceError(f"base model {error}{remedy}") from error
    if "quantization_config" in config:
        remedy = "adapters are not merged into quantized weights; name the model in full precision with --base-model"
        raise SourceError(f"base model {base.path}: {CONFIG} has a quantization_config: {remedy}")
    return base


def _open_base(transformers: Any, adapter: Path, base: Path, settings: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
    """Open the base model in the class that the adapter was trained with, with as many labels and tokens.

    Returns the model, and the names of its weights that were not in the folder.
    """
    named = (settings.get("auto_mapping") or {}).get("base_model_class")
    name = AUTO_CLASSES.get(settings.get("task_type") or "", named or Folder(base).architecture)
    own = (adapter / CONFIG).is_file()
    labels = {len(tensor) for key, tensor in weights.items() if CLASSIFIER.search(key)}
    given = {"num_labels": labels.pop()} if len(labels) == 1 and not own else {}
    config = transformers.AutoConfig.from_pretrained(adapter if own else base, local_files_only=True, **given)
    if own and hasattr(config, "quantization_config"):  # of the training; the weights of the base model are not quantized
        del config.quantization_config
    options = {"config": config, "local_files_only": True, "output_loading_info": True, "ignore_mismatched_sizes": True}
    options["dtype"] = torch.float32  # not float() of the loaded model, which would keep computed positions rounded
    model_class: Any = getattr(transformers, str(name), None)
    if not hasattr(model_class, "from_pretrained"):
        raise ValueError(f"transformers has no model class {name!r}; set task_type in {ADAPTER}: {', '.join(AUTO_CLASSES)}")
    model, info = model_class.from_pretrained(base, **options)
    new = {*info["missing_keys"], *(each[0] for each in info["mismatched_keys"])}
    try:
        table, output = model.get_input_embeddings(), model.get_output_embeddings()
    except NotImplementedError:  # image classifiers
        return model, new
    places = {name: module for name, module in model.named_modules() if module in (table, output)}
    rows = [len(weights[key]) for name in places for form in TABLES if (key := f"{PREFIX}{name}.{form}") in weights]
    if not rows and (trained := _trained_tokens(settings)):
        rows = [max(len(table.weight), max(trained) + 1)]
    if rows and rows[0] != len(table.weight):  # tokens were added before the training
        model.resize_token_embeddings(rows[0])
    # peft itself ties the vectors of single tokens.
    adapted = [
        name for name in places if any(key.startswith(f"{PREFIX}{name}.") and "trainable_tokens" not in key for key in weights)
    ]
    shared = settings.get("ensure_weight_tying") and len(adapted) < len(places)
    if output and adapted and table.weight is output.weight and not shared:
        # Beside the base model, one of the two tables is adapted, or each in its own way: they are no longer one.
        output.weight, config.tie_word_embeddings = torch.nn.Parameter(output.weight.detach().clone()), False
    return model, new


def _trained_tokens(settings: Mapping[str, Any]) -> set[int]:
    """Return the ids of single tokens whose vectors the adapter has."""
    given = settings.get("trainable_token_indices") or settings.get("token_indices") or ()
    return {token for ids in (given.values() if isinstance(given, dict) else [given]) for token in ids}


def _renamed(model: Any, weights: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rename weights of an adapter as transformers renames those of the base model.

    Some modules had other names in transformers 4, with which adapters were trained, and peft looks for them by name.
    """
    mapping, loading = (
        importlib.import_module(f"transformers.{name}") for name in ("conversion_mapping", "core_model_loading")
    )
    renamings = [each for each in mapping.get_model_conversion_mapping(model) if isinstance(each, loading.WeightRenaming)]
    places = {name: loading.rename_source_key(name.removeprefix(PREFIX), renamings, [])[0] for name in weights}
    return {PREFIX + places[name] if name.startswith(PREFIX) else name: tensor for name, tensor in weights.items()}
