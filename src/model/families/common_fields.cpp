#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/families/family.h"

namespace slime::model {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr double kHuge = 1e30;

constexpr std::array<std::pair<std::string_view, Rope::Kind>, 7> kRopeKinds{
    {{"default", Rope::Kind::kDefault},
     {"linear", Rope::Kind::kLinear},
     {"dynamic", Rope::Kind::kDynamic},
     {"llama3", Rope::Kind::kLlama3},
     {"yarn", Rope::Kind::kYarn},
     {"longrope", Rope::Kind::kLongrope},
     {"su", Rope::Kind::kLongrope}}};  // its name in the first files of Phi-3
constexpr int64_t kMostPositions = int64_t{1} << 40;

Rope::Kind rope_kind(const FieldReader& fields) {
  static constexpr auto kWords = [] {
    std::array<std::string_view, kRopeKinds.size()> words;
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = kRopeKinds[i].first;
    return words;
  }();
  const std::string word =
      fields.one_of(fields.has("rope_type") ? "rope_type" : "type", kWords).value_or("default");
  return std::ranges::find(kRopeKinds, word, [](const auto& kind) { return kind.first; })->second;
}

/// Zero and null mean the default, as in transformers.
double number_or(const FieldReader& fields, std::string_view name, double otherwise) {
  const double number = fields.number(name, 0, kHuge).value_or(0);
  return number > 0 ? number : otherwise;
}

void read_yarn(const FieldReader& fields, Rope& rope) {
  rope.beta_fast = number_or(fields, "beta_fast", 32);
  rope.beta_slow = number_or(fields, "beta_slow", 1);
  rope.truncates = fields.boolean("truncate").value_or(true);
  rope.mscale = fields.number("mscale", 0, kHuge).value_or(0);
  rope.mscale_all_dim = fields.number("mscale_all_dim", 0, kHuge).value_or(0);
}

void read_llama3(const FieldReader& fields, Rope& rope) {
  const FieldReader needed = fields.required();
  rope.low_freq_factor = needed.number("low_freq_factor", 1e-6, kHuge).value_or(1);
  rope.high_freq_factor = needed.number("high_freq_factor", 1e-6, kHuge).value_or(4);
  fields.expect(rope.high_freq_factor > rope.low_freq_factor, "high_freq_factor",
                "must be larger than low_freq_factor");
}

std::vector<double> read_factors(const FieldReader& fields, std::string_view name,
                                 int64_t rotary_dim) {
  if (fields.required().array(name) == nullptr) return {};
  std::vector<double> factors = fields.numbers<double>(name);
  const bool is_right = static_cast<int64_t>(factors.size()) == rotary_dim / 2 &&
                        std::ranges::all_of(factors, [](double f) { return f > 0 && f < kHuge; });
  fields.expect(is_right, name,
                fmt::format("must be {} numbers above 0, one for each two of the {} numbers of a "
                            "head that rotate",
                            rotary_dim / 2, rotary_dim));
  return factors;
}

/// What the kind needs besides theta. `above` is what `fields` lies in.
void read_rope_kind(const FieldReader& fields, const FieldReader& above, const ModelConfig& config,
                    const CommonDefaults& defaults, Rope& rope) {
  const int64_t max_positions = config.max_positions;
  rope.kind = rope_kind(fields);
  if (defaults.yarn_is_longrope && rope.kind == Rope::Kind::kYarn)
    rope.kind = Rope::Kind::kLongrope;
  if (rope.kind == Rope::Kind::kDefault) return;
  const bool has_original = rope.kind == Rope::Kind::kLlama3 || rope.kind == Rope::Kind::kYarn ||
                            rope.kind == Rope::Kind::kLongrope;
  if (has_original) {
    // Beside the scaling it counts more than inside; max_position_embeddings where it is nowhere.
    constexpr std::string_view kName = "original_max_position_embeddings";
    rope.original_max_positions = fields.integer(kName, 1, kMostPositions).value_or(max_positions);
    const auto beside = above.integer(kName, 1, kMostPositions);
    if (beside) rope.original_max_positions = *beside;
    if (!beside && defaults.original_positions)
      rope.original_max_positions = *defaults.original_positions;
  }
  if (rope.kind == Rope::Kind::kYarn || rope.kind == Rope::Kind::kLongrope) {
    const double ratio =
        static_cast<double>(max_positions) / static_cast<double>(rope.original_max_positions);
    rope.factor = fields.number("factor", 1e-6, kHuge).value_or(ratio);
    rope.attention_factor = fields.number("attention_factor", 1e-6, kHuge).value_or(0);
  } else {
    rope.factor = fields.required().number("factor", 1e-6, kHuge).value_or(1);
  }
  if (rope.kind == Rope::Kind::kYarn) read_yarn(fields, rope);
  if (rope.kind == Rope::Kind::kLlama3) read_llama3(fields, rope);
  if (rope.kind == Rope::Kind::kLongrope) {
    rope.short_factors = read_factors(fields, "short_factor", config.rotary_dim);
    rope.long_factors = read_factors(fields, "long_factor", config.rotary_dim);
  }
}

/// Of compressed-tensors: whole numbers of four bits, packed, with a factor for each group.
void check_int4_groups(const FieldReader& form) {
  static constexpr std::array<std::string_view, 1> kFormats = {"pack-quantized"};
  form.required().one_of("format", kFormats);
  const json::object* groups = form.object("config_groups");
  if (groups == nullptr) return;
  for (const auto& member : *groups) {
    const json::object* group = member.value().if_object();
    const json::value* weights = group == nullptr ? nullptr : group->if_contains("weights");
    if (weights == nullptr || !weights->is_object()) continue;
    const FieldReader fields = form.inside(weights->get_object(), "weights");
    fields.required().integer("num_bits", 4, 4);
    fields.expect(fields.boolean("symmetric").value_or(true), "symmetric", "must be true");
  }
}

/// The share of a head that rotates.
double read_rotary_factor(const FieldReader& fields, bool may_be_partial, double absent) {
  if (may_be_partial) return fields.number("partial_rotary_factor", 1e-6, 1).value_or(absent);
  fields.number("partial_rotary_factor", 1, 1);
  return 1;
}

void read_rope(const FieldReader& fields, ModelConfig& config, const CommonDefaults& defaults) {
  const bool may_be_partial = defaults.has_partial_rotary;
  Rope& rope = config.rope;
  rope.theta = fields.number("rope_theta", 1e-6, kHuge).value_or(10000.0);
  constexpr std::array kNames = {"rope_scaling", "rope_parameters"};
  double factor = read_rotary_factor(fields, may_be_partial, defaults.rotary_factor);
  for (const char* name : kNames) {
    if (const auto inner = fields.fields(name))
      factor = read_rotary_factor(*inner, may_be_partial, factor);
  }
  config.rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * factor);
  if (defaults.rotary_dim) config.rotary_dim = *defaults.rotary_dim;
  for (const char* name : kNames) {
    if (const auto inner = fields.fields(name))
      read_rope_fields(*inner, fields, config, defaults, rope);
  }
  if (may_be_partial && (config.rotary_dim < 2 || config.rotary_dim % 2 != 0)) {
    fields.wrong("partial_rotary_factor",
                 fmt::format("must make an even share of the {} numbers of a head rotate, here {}",
                             config.head_dim, config.rotary_dim));
  }
}

}  // namespace

void read_rope_fields(const FieldReader& fields, const FieldReader& above,
                      const ModelConfig& config, const CommonDefaults& defaults, Rope& rope) {
  rope.theta = fields.number("rope_theta", 1e-6, kHuge).value_or(rope.theta);
  read_rope_kind(fields, above, config, defaults, rope);
}

void read_stored_form(const FieldReader& fields, ModelConfig& config) {
  const auto form = fields.fields("quantization_config");
  if (!form) return;
  static constexpr std::array<std::string_view, 3> kMethods = {"fp8", "mxfp4",
                                                               "compressed-tensors"};
  const std::string method = form->required().one_of("quant_method", kMethods).value_or("");
  if (method == "mxfp4") config.stored_form = StoredForm::kMxfp4;
  if (method == "compressed-tensors") {
    config.stored_form = StoredForm::kInt4Groups;
    check_int4_groups(*form);
  }
  if (method == "fp8") {
    config.stored_form = StoredForm::kFp8Blocks;
    const std::string numbers = form->text("fmt").value_or("e4m3");
    form->expect(numbers.find("e4m3") != std::string::npos, "fmt", "must be e4m3");
    const auto block = form->numbers<int64_t>("weight_block_size");
    const bool is_square = block.size() == 2 && block[0] == block[1] && block[0] > 0;
    form->expect(is_square, "weight_block_size", "must be two equal numbers, as [128, 128]");
    if (is_square) config.fp8_block = block[0];
  }
}

void read_common(const FieldReader& fields, ModelConfig& config, const CommonDefaults& defaults) {
  const FieldReader needed = fields.required();
  config.vocab_size = needed.integer("vocab_size", 1, kMaxSize).value_or(1);
  config.hidden_size = needed.integer("hidden_size", 1, kMaxSize).value_or(2);
  config.intermediate_size = (defaults.needs_feed_forward ? needed : fields)
                                 .integer("intermediate_size", 1, kMaxSize)
                                 .value_or(1);
  config.num_layers = needed.integer("num_hidden_layers", 1, 4096).value_or(1);
  config.num_heads = needed.integer("num_attention_heads", 1, 65536).value_or(1);
  config.num_kv_heads = fields.integer("num_key_value_heads", 1, 65536)
                            .value_or(defaults.kv_heads.value_or(config.num_heads));
  config.head_dim = defaults.head_dim.value_or(config.hidden_size / config.num_heads);
  if (defaults.uses_head_dim)
    config.head_dim = fields.integer("head_dim", 2, 4096).value_or(config.head_dim);
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.wrong(
        "num_attention_heads",
        fmt::format("must be a multiple of num_key_value_heads ({})", config.num_kv_heads));
  }
  if (defaults.uses_head_dim && (config.head_dim < 2 || config.head_dim % 2 != 0)) {
    fields.note("head_dim", fmt::format("must be even for the rotary embedding, not {} "
                                        "(hidden_size / num_attention_heads when absent)",
                                        config.head_dim));
  }
  config.norm_eps = fields.number("rms_norm_eps", 0, 1).value_or(defaults.norm_eps);
  config.max_positions = needed.integer("max_position_embeddings", 1, int64_t{1} << 26).value_or(1);
  config.initializer_range = fields.number("initializer_range", 0, 100).value_or(0.02);
  config.ties_embeddings = fields.boolean("tie_word_embeddings").value_or(false);

  static constexpr std::array<std::string_view, 2> kSilu = {"silu", "swish"};
  static constexpr std::array<std::string_view, 1> kGelu = {"gelu_pytorch_tanh"};
  if (defaults.has_gelu) {
    fields.one_of("hidden_act", kGelu);
  } else {
    fields.one_of("hidden_act", kSilu);
  }
  fields.number("attention_dropout", 0, 0);
  read_stored_form(fields, config);
  static constexpr std::array<std::string_view, 3> kDtypes = {"bfloat16", "float16", "float32"};
  const std::string older = fields.one_of("torch_dtype", kDtypes).value_or("float32");
  config.dtype = fields.one_of("dtype", kDtypes).value_or(older);
  read_rope(fields, config, defaults);
}

void read_windows(const FieldReader& fields, ModelConfig& config, int64_t window,
                  int64_t first_windowed) {
  config.window.assign(static_cast<size_t>(config.num_layers), 0);
  const json::array* types = fields.array("layer_types");
  if (types != nullptr && static_cast<int64_t>(types->size()) != config.num_layers) {
    fields.note("layer_types", fmt::format("must have one entry per layer ({}), not {}",
                                           config.num_layers, types->size()));
    return;
  }
  for (int64_t i = 0; i < config.num_layers; ++i) {
    bool windowed = i >= first_windowed;
    if (types != nullptr) {
      const json::value& type = (*types)[static_cast<size_t>(i)];
      windowed = type == "sliding_attention";
      const bool is_sparse = config.indexer.count > 0 && type == "indexed_attention";
      if (!windowed && !is_sparse && type != "full_attention") {
        fields.note(
            fmt::format("layer_types[{}]", i),
            fmt::format("must be one of full_attention, sliding_attention, not {}", shown(type)));
        return;
      }
      if (windowed && window == 0) {
        fields.note(fmt::format("layer_types[{}]", i),
                    "slides, but sliding_window gives no window");
        return;
      }
    }
    if (windowed) config.window[static_cast<size_t>(i)] = window;
  }
}

}  // namespace slime::model
