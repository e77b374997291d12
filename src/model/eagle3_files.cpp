// EAGLE-3 directories: config.json and the headers of the weight files, checked against the target.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/lower_case.h"
#include "model/eagle3.h"
#include "model/model_files.h"

namespace slime::model {
namespace {

constexpr int64_t kMostIds = int64_t{1} << 24;
/// 2, n / 2 and n - 3 ascend from here on.
constexpr int64_t kLeastTargetLayers = 7;
constexpr int64_t kNumCaptured = 3;
/// The second is vLLM's name for the same form; the third is what the authors' own files say of themselves.
constexpr std::array<std::string_view, 3> kArchitectures = {
    "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM"};

/// Tensors that directories may hold and that are not read.
constexpr std::string_view kTokenMap = "d2t";
constexpr std::string_view kInverseMap = "t2d";

json::object read_eagle3_config(const std::filesystem::path& directory) {
  const auto path = directory / "config.json";
  std::error_code error;  // links that lead nowhere
  if (!std::filesystem::exists(path, error)) {
    throw ConfigError(
        fmt::format("{}: {}; an EAGLE-3 draft model is a directory with config.json "
                    "and model.safetensors",
                    directory.string(),
                    std::filesystem::is_directory(directory, error) ? "has no config.json"
                                                                    : "is no directory"));
  }
  const json::value value = read_json_file(path, size_t{16} << 20);
  if (!value.is_object()) throw ConfigError(path.string() + ": must hold a JSON object");
  return value.get_object();
}

std::string architecture_of(const json::object& config) {
  const json::value* list = config.if_contains("architectures");
  if (list == nullptr || !list->is_array() || list->get_array().empty()) return "";
  const json::string* first = list->get_array().front().if_string();
  return first == nullptr ? "" : std::string(*first);
}

/// Throws ConfigError where the directory is another kind of draft model, or none.
void check_kind(const std::filesystem::path& directory, const json::object& config) {
  const std::string name = architecture_of(config);
  const std::string word = lower_case(name);
  const auto refuse = [&](std::string_view what) {
    throw ConfigError(
        name.empty()
            ? fmt::format("{}: config.json names no architecture, as "
                          "\"architectures\": [\"LlamaForCausalLMEagle3\"]: it is {}",
                          directory.string(), what)
            : fmt::format("{}: architectures \"{}\" is {}", directory.string(), name, what));
  };
  constexpr std::string_view kInstead =
      "EAGLE-3 draft models are computed (LlamaForCausalLMEagle3); without a draft model guesses "
      "come from texts (suffix, NGRAM) or the model's own layer (mtp, NEXTN)";
  const bool names_eagle = word.find("eagle") != std::string::npos;
  if (config.contains("transformer_layer_config"))
    refuse(fmt::format("in the format of the speculators library; {}", kInstead));
  if (names_eagle && word.find("eagle3") == std::string::npos)
    refuse(
        fmt::format("an EAGLE draft model of version 1 or 2, which is not computed; {}", kInstead));
  const bool is_known = std::ranges::find(kArchitectures, name) != kArchitectures.end();
  if (is_known && (names_eagle || config.contains("draft_vocab_size"))) return;
  refuse(fmt::format("no EAGLE-3 draft model that is known; {}", kInstead));
}

json::object eagle3_config(const std::filesystem::path& directory) {
  json::object config = read_eagle3_config(directory);
  check_kind(directory, config);
  return config;
}

/// A directory with its configuration and its open files. Throws ConfigError where it is another kind of draft model, or
/// none.
struct Eagle3Directory {
  explicit Eagle3Directory(const std::filesystem::path& directory)
      : path(directory), config(eagle3_config(directory)), files(directory) {}

  const std::filesystem::path path;
  const json::object config;  // before the files: it says more than that some are missing
  const ModelFiles files;
};

/// Where the files have it: "model." or nothing before `name`.
std::string prefix_of(const ModelFiles& files, const std::string& name) {
  return files.tensors().contains("model." + name) ? "model." : "";
}

std::string layer_prefix_of(const ModelFiles& files) {
  for (const char* prefix : {"midlayer.", "model.midlayer.", "layers.0.", "model.layers.0."})
    if (files.tensors().contains(prefix + std::string("hidden_norm.weight"))) return prefix;
  return "midlayer.";
}

/// One Llama layer with the positions of its target.
ModelConfig layer_of(json::object object, const ModelConfig& target, const std::string& where) {
  object["model_type"] = "llama";
  ModelConfig layer = parse_model_config(object, where);
  layer.max_positions = target.max_positions;
  return layer;
}

void check_layer(const ModelConfig& layer, const ModelConfig& target, const FieldReader& fields) {
  fields.expect(layer.num_layers == 1, "num_hidden_layers",
                "must be 1: draft models of one layer are computed");
  fields.expect(!layer.has_qkv_bias, "attention_bias", "must be false: biases are not computed");
  fields.expect(layer.stored_form == StoredForm::kPlain, "quantization_config",
                "must be absent: weights in low precision are not read");
  fields.expect(layer.rope.kind != Rope::Kind::kLongrope, "rope_scaling",
                "must be another kind than longrope");
  fields.expect(layer.window.empty() || layer.window.front() == 0, "layer_types",
                "must be full_attention: windows are not computed");
  if (layer.vocab_size != target.vocab_size)
    fields.note("vocab_size", fmt::format("is {}, and the model has {} ids: the draft model is of "
                                          "another model",
                                          layer.vocab_size, target.vocab_size));
}

std::vector<int64_t> usual_layers(const ModelConfig& target, const FieldReader& fields) {
  if (target.num_layers >= kLeastTargetLayers)
    return {2, target.num_layers / 2, target.num_layers - 3};
  fields.note(
      "eagle_config.eagle_aux_hidden_state_layer_ids",
      fmt::format("is absent: three layers of a model of {} have to be named", target.num_layers));
  return {};
}

/// The layers whose inputs are read.
std::vector<int64_t> captured_layers(const FieldReader& fields, const ModelConfig& target) {
  constexpr std::string_view kLayers = "eagle_aux_hidden_state_layer_ids";
  const auto eagle = fields.fields("eagle_config");
  if (eagle)
    eagle->expect(eagle->boolean("use_aux_hidden_state").value_or(true), "use_aux_hidden_state",
                  "must be true: hidden states of three layers are read");
  const json::array* outputs = eagle ? eagle->array(kLayers) : nullptr;
  const bool names_outputs = outputs != nullptr && !outputs->empty();
  if (!names_outputs && !fields.has(kLayers)) return usual_layers(target, fields);
  const FieldReader& from = names_outputs ? *eagle : fields;
  std::vector<int64_t> layers = from.numbers<int64_t>(kLayers);
  const int64_t to_input = names_outputs ? 1 : 0;
  std::ranges::sort(layers);
  const bool are_right = std::ssize(layers) == kNumCaptured && layers.front() >= -to_input &&
                         layers.back() <= target.num_layers - to_input &&
                         std::ranges::adjacent_find(layers) == layers.end();
  if (!are_right) {
    from.note(
        kLayers,
        fmt::format("must be {} different layers, of {} to {} (a layer's {} is read)", kNumCaptured,
                    -to_input, target.num_layers - to_input, names_outputs ? "output" : "input"));
    return {};
  }
  for (int64_t& layer : layers) layer += to_input;
  return layers;
}

void check_hidden_sizes(const Eagle3Form& form, const ModelConfig& target,
                        const FieldReader& fields) {
  if (form.target_hidden != target.hidden_size) {
    fields.note(fields.has("target_hidden_size") ? "target_hidden_size" : "hidden_size",
                fmt::format("is {}, and the model's hidden size is {}: the draft model is of "
                            "another model",
                            form.target_hidden, target.hidden_size));
  }
  if (form.layer.hidden_size == target.hidden_size) return;
  const auto needs = [&](bool has_tensor, std::string_view tensor) {
    if (has_tensor) return;
    fields.note("hidden_size", fmt::format("is {}: without the tensor {} it must be the model's {}",
                                           form.layer.hidden_size, tensor, target.hidden_size));
  };
  needs(!form.embedding.empty(), "embed_tokens.weight");
  needs(form.has_head, "lm_head.weight");
}

void check_token_map(const ModelFiles& files, const Eagle3Form& form, const std::string& directory,
                     std::vector<std::string>& problems) {
  const bool covers_all = form.draft_vocab == form.layer.vocab_size;
  if (form.has_token_map) {
    const StoredTensor& map = *files.tensors().at(std::string(kTokenMap)).tensor;
    if (map.dtype != at::kLong && map.dtype != at::kInt)
      problems.push_back(
          fmt::format("{}: tensor {} must hold whole numbers", directory, kTokenMap));
    if (map.shape != std::vector<int64_t>{form.draft_vocab})
      problems.push_back(fmt::format("{}: tensor {} is [{}], draft_vocab_size means [{}]",
                                     directory, kTokenMap, fmt::join(map.shape, ", "),
                                     form.draft_vocab));
  } else if (!covers_all) {
    problems.push_back(fmt::format(
        "{}: tensor {} is missing: it says which of the model's {} ids the draft vocabulary of {} "
        "are",
        directory, kTokenMap, form.layer.vocab_size, form.draft_vocab));
  }
  if (!form.has_head && !covers_all)
    problems.push_back(fmt::format("{}: tensor lm_head.weight is missing", directory));
}

ModelFiles::Surplus surplus_of_draft(const std::string& name) {
  const bool is_known =
      name == kTokenMap || name == kInverseMap || name.ends_with(".rotary_emb.inv_freq");
  return is_known ? ModelFiles::Surplus::kIgnored : ModelFiles::Surplus::kProblem;
}

/// Fills `problems`; throws ConfigError where nothing more can be said.
Eagle3Form eagle3_form_of(const Eagle3Directory& directory, const ModelConfig& target,
                          std::vector<std::string>& problems) {
  const ModelFiles& files = directory.files;
  const std::string where = (directory.path / "config.json").string();
  const FieldReader fields(directory.config, where + ": ", problems);
  Eagle3Form form;
  form.layer = layer_of(directory.config, target, where);
  check_layer(form.layer, target, fields);
  form.target_hidden =
      fields.integer("target_hidden_size", 1, kMostIds).value_or(form.layer.hidden_size);
  form.draft_vocab =
      fields.integer("draft_vocab_size", 1, kMostIds).value_or(form.layer.vocab_size);
  fields.expect(form.draft_vocab <= form.layer.vocab_size, "draft_vocab_size",
                fmt::format("must be at most vocab_size ({})", form.layer.vocab_size));
  form.norms_residual = fields.boolean("norm_before_residual").value_or(false);
  form.captured_layers = captured_layers(fields, target);
  form.layer_prefix = layer_prefix_of(files);
  form.around_prefix = prefix_of(files, "fc.weight");
  for (const char* name : {"embed_tokens.weight", "model.embed_tokens.weight"})
    if (files.tensors().contains(name)) form.embedding = name;
  form.has_head = files.tensors().contains("lm_head.weight");
  form.has_token_map = files.tensors().contains(std::string(kTokenMap));
  check_hidden_sizes(form, target, fields);
  check_token_map(files, form, directory.path.string(), problems);
  return form;
}

/// The draft model without memory, or all problems of configuration and headers.
std::shared_ptr<const Eagle3> checked_outline(const Eagle3Directory& directory,
                                              const ModelConfig& target,
                                              std::vector<std::string>& problems) {
  Eagle3Form form = eagle3_form_of(directory, target, problems);
  try {
    auto outline =
        std::make_shared<Eagle3>(std::move(form), target, Precision{.device = at::kMeta});
    directory.files.check_headers(outline->weights(), StoredForm::kPlain, 0, surplus_of_draft);
    return outline;
  } catch (const ConfigError& error) {
    problems.emplace_back(error.what());
    return nullptr;
  }
}

std::vector<TokenId> token_ids_of(const Eagle3Directory& directory, const Eagle3Form& form) {
  std::vector<TokenId> ids(static_cast<size_t>(form.draft_vocab));
  std::iota(ids.begin(), ids.end(), 0);
  if (!form.has_token_map) return ids;
  const std::string name(kTokenMap);
  const Tensor offsets =
      directory.files.tensors().at(name).file->read(name).to(at::kLong).contiguous();
  const auto* offset = offsets.const_data_ptr<int64_t>();
  for (size_t i = 0; i < ids.size(); ++i) {
    // No sum of what a file says before it is known to be small.
    const int64_t id = static_cast<int64_t>(i) + std::clamp(offset[i], -kMostIds, kMostIds);
    if (id < 0 || id >= form.layer.vocab_size) {
      throw ConfigError(
          fmt::format("{}: tensor {} has {} for id {} of the draft vocabulary: that sum is none of "
                      "the model's {} ids",
                      directory.path.string(), name, offset[i], i, form.layer.vocab_size));
    }
    ids[i] = static_cast<TokenId>(id);
  }
  return ids;
}

/// Each line of `problems` behind "FLAG: ".
std::string behind_flag(std::string_view flag, std::string_view problems) {
  if (flag.empty()) return std::string(problems);
  std::string text = fmt::format("{}: ", flag);
  for (const char letter : problems) {
    text += letter;
    if (letter == '\n') text += fmt::format("{}: ", flag);
  }
  return text;
}

/// What `make` returns; its ConfigError with `flag`.
template <typename Make>
auto named_by(std::string_view flag, const Make& make) {
  try {
    return make();
  } catch (const ConfigError& error) {
    throw ConfigError(behind_flag(flag, error.what()));
  }
}

std::shared_ptr<const Eagle3> outline_of(const Eagle3Directory& directory,
                                         const ModelConfig& target) {
  std::vector<std::string> problems;
  auto outline = checked_outline(directory, target, problems);
  if (!problems.empty()) throw ConfigError(problems);
  return outline;
}

}  // namespace

std::vector<std::string> eagle3_problems(const std::filesystem::path& directory,
                                         const ModelConfig& target, std::string_view flag) {
  std::vector<std::string> problems;
  try {
    const Eagle3Directory opened(directory);
    const auto outline = checked_outline(opened, target, problems);
    if (problems.empty()) token_ids_of(opened, outline->form());
  } catch (const ConfigError& error) {
    problems.emplace_back(error.what());
  }
  for (std::string& problem : problems) problem = behind_flag(flag, problem);
  return problems;
}

std::shared_ptr<const Eagle3> load_eagle3(const std::filesystem::path& directory,
                                          const ModelConfig& target, const Precision& precision,
                                          std::string_view flag) {
  return named_by(flag, [&]() -> std::shared_ptr<const Eagle3> {
    const Eagle3Directory opened(directory);
    auto draft = std::make_shared<Eagle3>(outline_of(opened, target)->form(), target, precision);
    opened.files.read_into(draft->weights(), StoredForm::kPlain, 0, surplus_of_draft);
    draft->set_token_ids(token_ids_of(opened, draft->form()));
    return draft;
  });
}

std::shared_ptr<const Eagle3> outline_eagle3(const std::filesystem::path& directory,
                                             const ModelConfig& target, std::string_view flag) {
  return named_by(flag, [&] { return outline_of(Eagle3Directory(directory), target); });
}

}  // namespace slime::model
