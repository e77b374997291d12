"""One evaluation data set with what it has of its own: sampling, reward, generation."""

from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Optional

__all__ = ["EvalDatasetConfig"]


@dataclass
class EvalDatasetConfig:
    name: str
    path: str
    rm_type: Optional[str] = None
    custom_rm_path: Optional[str] = None
    input_key: Optional[str] = None
    label_key: Optional[str] = None
    tool_key: Optional[str] = None
    metadata_key: Optional[str] = None
    multimodal_keys: Optional[Dict[str, str]] = None
    apply_chat_template: Optional[bool] = None
    apply_chat_template_kwargs: Optional[Dict[str, Any]] = None
    n_samples_per_eval_prompt: int = 1
    custom_generate_function_path: Optional[str] = None
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    top_k: Optional[int] = None
    max_response_len: Optional[int] = None
    min_eval_samples: Optional[int] = None
    stop: Optional[List[str]] = None
    stop_token_ids: Optional[List[int]] = None
    min_new_tokens: Optional[int] = None
    repetition_penalty: Optional[float] = None
    no_stop_trim: Optional[bool] = None
    skip_special_tokens: Optional[bool] = None
    metadata_overrides: Dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, record):
        """Keys that are no field are left out."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in record.items() if name in names})

    @property
    def cache_key(self):
        """What the rows depend on."""
        return (self.name, self.path, self.input_key, self.label_key, self.tool_key, self.metadata_key)

    def inject_metadata(self, metadata):
        """A row's metadata with this data set's rm_type and overrides."""
        merged = {**metadata} if isinstance(metadata, dict) else {}
        if self.rm_type is not None:
            merged["rm_type"] = self.rm_type
        merged.update(self.metadata_overrides or {})
        return merged
