#include <fmt/format.h>

#include <array>

#include "model/families/family.h"

namespace slime::model {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr double kHuge = 1e30;

Rope::Kind rope_kind(FieldReader& fields, std::string_view field) {
  const std::string word = fields.text(field, "default");
  if (word == "default") return Rope::Kind::kDefault;
  if (word == "linear") return Rope::Kind::kLinear;
  if (word == "llama3") return Rope::Kind::kLlama3;
  fields.problem(field, "supported here: default, linear, llama3");
  return Rope::Kind::kDefault;
}

/// `fields` is rope_scaling (kind under rope_type or type) or rope_parameters (theta inside).
void read_rope_kind(FieldReader& fields, Rope& rope) {
  rope.kind = rope_kind(fields, fields.has("rope_type") ? "rope_type" : "type");
  if (rope.kind == Rope::Kind::kDefault) return;
  rope.factor = fields.number("factor", 1, kHuge);
  if (rope.kind != Rope::Kind::kLlama3) return;
  rope.low_freq_factor = fields.number("low_freq_factor", 1e-6, kHuge);
  rope.high_freq_factor = fields.number("high_freq_factor", 1e-6, kHuge);
  rope.original_max_positions =
      fields.integer("original_max_position_embeddings", 1, int64_t{1} << 40);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    fields.problem("high_freq_factor", "must be larger than low_freq_factor");
  }
}

/// The share of a head that rotates.
double read_rotary_factor(FieldReader& fields, bool may_be_partial, double absent) {
  if (may_be_partial) return fields.number("partial_rotary_factor", 1e-6, 1, absent);
  fields.expect_number("partial_rotary_factor", 1);
  return 1;
}

void read_rope(FieldReader& fields, ModelConfig& config, bool may_be_partial) {
  Rope& rope = config.rope;
  rope.theta = fields.number("rope_theta", 1e-6, kHuge, 10000.0);
  double factor = read_rotary_factor(fields, may_be_partial, 1);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (const json::object* object = fields.object(name)) {
      FieldReader inner(*object, fields.where() + ", " + name, fields.problems());
      rope.theta = inner.number("rope_theta", 1e-6, kHuge, rope.theta);
      factor = read_rotary_factor(inner, may_be_partial, factor);
      read_rope_kind(inner, rope);
    }
  }
  config.rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * factor);
  if (may_be_partial && (config.rotary_dim < 2 || config.rotary_dim % 2 != 0)) {
    fields.problem("partial_rotary_factor", fmt::format("{} of {} numbers of a head: must be even",
                                                        config.rotary_dim, config.head_dim));
  }
}

}  // namespace

void read_common(FieldReader& fields, ModelConfig& config, const CommonDefaults& defaults) {
  config.vocab_size = fields.integer("vocab_size", 1, kMaxSize);
  config.hidden_size = fields.integer("hidden_size", 1, kMaxSize);
  config.intermediate_size = fields.integer("intermediate_size", 1, kMaxSize);
  config.num_layers = fields.integer("num_hidden_layers", 1, 4096);
  config.num_heads = fields.integer("num_attention_heads", 1, 65536);
  config.num_kv_heads =
      fields.integer("num_key_value_heads", 1, 65536, defaults.kv_heads.value_or(config.num_heads));
  config.head_dim = fields.integer(
      "head_dim", 2, 4096, defaults.head_dim.value_or(config.hidden_size / config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.problem(
        "num_attention_heads",
        fmt::format("must be a multiple of num_key_value_heads, {}", config.num_kv_heads));
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    fields.problem("head_dim", fmt::format("rotary embedding needs an even head size, not {} "
                                           "(hidden_size / num_attention_heads when absent)",
                                           config.head_dim));
  }
  config.norm_eps = fields.number("rms_norm_eps", 0, 1, defaults.norm_eps);
  config.max_positions = fields.integer("max_position_embeddings", 1, int64_t{1} << 26);
  config.initializer_range = fields.number("initializer_range", 0, 100, 0.02);
  config.ties_embeddings = fields.boolean("tie_word_embeddings", false);

  static constexpr std::array<std::string_view, 2> kActivations = {"silu", "swish"};
  fields.expect_text("hidden_act", kActivations);
  fields.expect_number("attention_dropout", 0);
  if (fields.has("quantization_config")) {
    fields.problem("quantization_config",
                   "quantised weights cannot be read; use the original checkpoint");
  }
  static constexpr std::array<std::string_view, 3> kDtypes = {"bfloat16", "float16", "float32"};
  fields.expect_text("dtype", kDtypes);
  fields.expect_text("torch_dtype", kDtypes);
  config.dtype = fields.text("dtype", fields.text("torch_dtype", "float32"));
  read_rope(fields, config, defaults.has_partial_rotary);
}

void read_windows(FieldReader& fields, ModelConfig& config, int64_t window,
                  int64_t first_windowed) {
  config.window.assign(static_cast<size_t>(config.num_layers), 0);
  const json::array* types = fields.array("layer_types");
  if (types != nullptr && static_cast<int64_t>(types->size()) != config.num_layers) {
    fields.problem("layer_types",
                   fmt::format("must have one entry per layer: {}", config.num_layers));
    return;
  }
  for (int64_t i = 0; i < config.num_layers; ++i) {
    bool windowed = i >= first_windowed;
    if (types != nullptr) {
      const json::value& type = (*types)[static_cast<size_t>(i)];
      windowed = type == "sliding_attention";
      if (!windowed && type != "full_attention") {
        fields.problem(
            "layer_types",
            fmt::format("layer {}: supported here: full_attention, sliding_attention", i));
        return;
      }
      if (windowed && window == 0) {
        fields.problem("layer_types",
                       fmt::format("layer {} slides, but sliding_window gives no window", i));
        return;
      }
    }
    if (windowed) config.window[static_cast<size_t>(i)] = window;
  }
}

}  // namespace slime::model
