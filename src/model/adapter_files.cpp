#include "model/adapter_files.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/error.h"
#include "model/save.h"

namespace slime::model {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kTensorFile = "adapter_model.safetensors";

fs::path file_of(const fs::path& directory) {
  const fs::path path = directory / kTensorFile;
  if (fs::exists(path)) return path;
  if (fs::exists(directory / "adapter_model.bin")) {
    throw ConfigError(fmt::format(
        "{} has adapter_model.bin, which may run code when it is read: save the adapter again with "
        "safe_serialization=True",
        directory.string()));
  }
  throw ConfigError(
      fmt::format("{} has no {}: it is no adapter of PEFT", directory.string(), kTensorFile));
}

/// Which half of a pair a tensor is.
struct Half {
  std::string module;
  bool is_b = false;
  bool is_embedding = false;
};

std::optional<Half> half_of(const std::string& name) {
  struct End {
    std::string_view text;
    bool is_b, is_embedding;
  };
  constexpr End kEnds[] = {{".lora_A.weight", false, false},
                           {".lora_B.weight", true, false},
                           {".lora_embedding_A", false, true},
                           {".lora_embedding_B", true, true}};
  for (const End& end : kEnds) {
    if (!name.ends_with(end.text)) continue;
    return Half{name.substr(0, name.size() - end.text.size()), end.is_b, end.is_embedding};
  }
  return std::nullopt;
}

std::string name_of(const Half& half) {
  const char letter = half.is_b ? 'B' : 'A';
  return half.is_embedding ? fmt::format("{}{}.lora_embedding_{}", kPrefix, half.module, letter)
                           : fmt::format("{}{}.lora_{}.weight", kPrefix, half.module, letter);
}

/// Text models and those of vision-language classes name the same layers.
std::string in_model(const std::string& name, const ModelConfig& model) {
  for (const std::string_view prefix :
       {"model.language_model.", "language_model.model.", "model."}) {
    if (name.starts_with(prefix)) return model.tensor_prefix + name.substr(prefix.size());
  }
  return name;
}

constexpr std::string_view kGateUp = ".gate_up_proj";
constexpr std::string_view kDown = ".down_proj";

bool is_fused(const std::string& module) {
  return module.ends_with(fmt::format(".experts{}", kGateUp)) ||
         module.ends_with(fmt::format(".experts{}", kDown));
}

/// Of at least one number.
bool are_finite(const Tensor& x) {
  const auto [low, high] = at::aminmax(x);  // a NaN is both
  return at::isfinite(at::stack({low, high})).all().item<bool>();
}

}  // namespace

bool has_adapter(const fs::path& directory) { return fs::exists(directory / kConfigFile); }

AdapterNames::AdapterNames(const ModelConfig& model) : tensors{"lm_head.weight"} {
  for (const AdapterModule& module : modules_of(model)) modules.insert(module.name);
  const auto blank = make_blank_network(model, {.device = at::kMeta});
  for (const NamedWeight& weight : blank->weights().tensors()) tensors.insert(weight.name);
}

AdapterFile::AdapterFile(const fs::path& directory, const ModelConfig& model)
    : AdapterFile(directory, model, AdapterNames(model)) {}

AdapterFile::AdapterFile(const fs::path& directory, const ModelConfig& model,
                         const AdapterNames& names)
    : file_(file_of(directory)) {
  form_.config = read_adapter_config(directory);
  read_names(model, names);
}

void AdapterFile::read_names(const ModelConfig& model, const AdapterNames& names) {
  std::vector<std::string> problems;
  const auto problem = [&](const std::string& name, const std::string& what) {
    problems.push_back(fmt::format("{}: {} {}", file_.path().string(), name, what));
  };
  const auto& stored = file_.tensors();
  const AdapterRules rules(form_.config);

  for (const auto& [name, tensor] : stored) {
    if (!name.starts_with(kPrefix)) {
      problem(name, "is no tensor of an adapter");
      continue;
    }
    const std::string inner = in_model(name.substr(kPrefix.size()), model);
    if (inner.ends_with(".lora_magnitude_vector")) {
      problem(name, "is of DoRA, which is not supported");
      continue;
    }
    std::optional<Half> half = half_of(inner);
    if (!half) {
      if (!names.tensors.contains(inner)) {
        problem(name, "is no tensor of the model");
        continue;
      }
      form_.saved.push_back(inner);
      entries_[std::string(kPrefix) + inner] = {name};
      continue;
    }
    if (tensor.shape.size() != 2) {
      problem(name, "is no matrix");
      continue;
    }
    Form form = Form::kAsItIs;
    int64_t experts = 1;
    const bool is_inner = half->module.ends_with(".experts.base_layer");
    if (is_inner || half->module.ends_with(".experts")) {
      std::string prefix = half->module;
      if (is_inner) prefix.resize(prefix.size() - std::string_view(".base_layer").size());
      const std::string own = name.substr(0, name.rfind(".experts") + 8);
      const bool has_both = stored.contains(own + ".base_layer.lora_A.weight") &&
                            stored.contains(own + ".lora_A.weight");
      // One alone is that of the only target.
      const bool only_down =
          !has_both && std::ranges::none_of(
                           form_.config.target_parameters,
                           [](const std::string& word) { return word.ends_with("gate_up_proj"); });
      half->module = prefix + std::string(is_inner || (!has_both && !only_down) ? kGateUp : kDown);
      form = half->is_b ? Form::kExpertsBehind : Form::kExpertsBefore;
      experts = model.experts.count;
    }
    if (!names.modules.contains(half->module)) {
      problem(name, "is for a module that the model does not have");
      continue;
    }
    const int64_t ranks = half->is_b ? tensor.shape[1] : tensor.shape[0];
    if (experts < 1 || ranks < experts || ranks % experts != 0) {
      problem(name, fmt::format("has {} ranks for {} experts", ranks, experts));
      continue;
    }
    if (!entries_.insert_or_assign(name_of(*half), Entry{name, form}).second) {
      problem(name, "is there under another name too");
      continue;
    }
    Half other = *half;
    other.is_b = !half->is_b;
    if (half->is_b) continue;
    const int64_t rank = ranks / experts;
    form_.pairs.push_back({half->module, rank, rules.scale_of(half->module, rank)});
  }
  for (const auto& [name, entry] : entries_) {
    std::optional<Half> half = half_of(name.substr(kPrefix.size()));
    if (!half) continue;
    half->is_b = !half->is_b;
    if (!entries_.contains(name_of(*half)))
      problem(entry.stored, "is there without the other half of its pair");
  }
  for (const AdapterForm::Pair& pair : form_.pairs) {
    if (form_.saves(pair.module + ".weight")) problem(pair.module, "has a pair and is saved whole");
  }
  if (problems.empty() && entries_.empty()) problem("", "holds no tensors");
  if (!problems.empty()) throw ConfigError(problems);
}

StoredTensor AdapterFile::shaped(const Entry& entry, const NamedWeight& weight) const {
  StoredTensor stored = file_.tensors().at(entry.stored);
  const int64_t experts = weight.full_shape.front();
  if (entry.form == Form::kExpertsBefore)
    stored.shape = {experts, stored.shape[0] / experts, stored.shape[1]};
  if (entry.form == Form::kExpertsBehind)
    stored.shape = {experts, stored.shape[0], stored.shape[1] / experts};
  return stored;
}

Tensor AdapterFile::whole(const Entry& entry, const NamedWeight& weight) const {
  const Tensor stored = file_.read(entry.stored);
  const std::vector<int64_t> shape = shaped(entry, weight).shape;
  if (entry.form != Form::kExpertsBehind) return stored.view(shape);
  return stored.view({shape[1], shape[2], shape[0]}).permute({2, 0, 1});
}

std::string AdapterFile::not_finite(const NamedWeight& weight) const {
  return fmt::format("{}: {} holds what is no finite floating-point number", file_.path().string(),
                     entries_.at(weight.name).stored);
}

std::string AdapterFile::problem_of(const NamedWeight& weight) const {
  const auto found = entries_.find(weight.name);
  if (found == entries_.end())
    return fmt::format("{} does not have {}", file_.path().string(), weight.name);
  const StoredTensor stored = shaped(found->second, weight);
  if (stored.shape != weight.full_shape) {
    return fmt::format("{}: {} has shape [{}], the model needs [{}]", file_.path().string(),
                       found->second.stored, fmt::join(stored.shape, ", "),
                       fmt::join(weight.full_shape, ", "));
  }
  return at::isFloatingType(stored.dtype) ? std::string() : not_finite(weight);
}

void AdapterFile::read_into(AdapterTensors& tensors) const {
  const at::NoGradGuard no_grad;
  std::vector<std::string> problems;
  for (const NamedWeight& weight : tensors.weights().tensors()) {
    std::string problem = problem_of(weight);
    if (!problem.empty()) {
      problems.push_back(std::move(problem));
      continue;
    }
    const Tensor stored = whole(entries_.at(weight.name), weight);
    if (!at::isfinite(stored.to(at::kFloat)).all().item<bool>()) {
      problems.push_back(not_finite(weight));
      continue;
    }
    Weights::view(tensors.weights().flat(), weight).copy_(weight.slices.of(stored));
  }
  if (!problems.empty()) throw ConfigError(problems);
}

/// Numbers are looked at where they are in the end: on the host that took longer than the copy.
void AdapterFile::read_into(AdapterTensors& tensors, StagedReader& reader) const {
  const at::NoGradGuard no_grad;
  const Tensor& flat = tensors.weights().flat();
  std::vector<std::string> problems;
  std::vector<StagedTensor> staged;
  std::vector<const NamedWeight*> turned;
  for (const NamedWeight& weight : tensors.weights().tensors()) {
    std::string problem = problem_of(weight);
    if (!problem.empty()) {
      problems.push_back(std::move(problem));
      continue;
    }
    const Entry& entry = entries_.at(weight.name);
    if (entry.form == Form::kExpertsBehind) {
      turned.push_back(&weight);
    } else {
      staged.push_back({&file_, shaped(entry, weight), weight.slices, Weights::view(flat, weight)});
    }
  }
  if (!problems.empty()) throw ConfigError(problems);
  reader.read(staged);
  for (const NamedWeight* weight : turned) {
    const Tensor stored = whole(entries_.at(weight->name), *weight);
    Weights::view(flat, *weight).copy_(weight->slices.of(stored));
  }
  if (are_finite(flat)) return;
  for (const NamedWeight& weight : tensors.weights().tensors())
    if (!are_finite(Weights::view(flat, weight))) problems.push_back(not_finite(weight));
  throw ConfigError(problems);
}

void write_adapter(const fs::path& directory, const AdapterForm& form,
                   const std::vector<TensorToWrite>& tensors) {
  std::vector<TensorToWrite> files;
  AdapterConfig told = form.config;
  std::set<std::string> targets, parameters;
  for (const AdapterForm::Pair& pair : form.pairs) {
    const size_t dot = pair.module.rfind('.');
    const std::string last = dot == std::string::npos ? pair.module : pair.module.substr(dot + 1);
    if (is_fused(pair.module)) {
      parameters.insert("mlp.experts." + last);
    } else {
      targets.insert(last);
    }
  }
  // What hit the modules: other readers understand all-linear in ways of their own.
  if (told.target_expression.empty()) told.targets = {targets.begin(), targets.end()};
  told.target_parameters = {parameters.begin(), parameters.end()};
  for (const TensorToWrite& tensor : tensors) {
    std::optional<Half> half = half_of(tensor.name.substr(kPrefix.size()));
    if (!half || !is_fused(half->module)) {
      files.push_back(tensor);
      continue;
    }
    const bool is_gate_up = half->module.ends_with(kGateUp);
    const std::string prefix =
        half->module.substr(0, half->module.size() - (is_gate_up ? kGateUp : kDown).size());
    const bool has_both = form.find(prefix + std::string(kGateUp)) != nullptr &&
                          form.find(prefix + std::string(kDown)) != nullptr;
    half->module = is_gate_up && has_both ? prefix + ".base_layer" : prefix;
    TensorToWrite turned = tensor;
    turned.name = name_of(*half);
    const std::vector<int64_t>& shape = tensor.shape;  // [E, R, I] or [E, O, R]
    if (half->is_b) {
      turned.shape = {shape[1], shape[2] * shape[0]};
      turned.bring = [bring = tensor.bring] {
        const Tensor whole = bring();
        return whole.defined() ? whole.permute({1, 2, 0}).reshape({whole.size(1), -1}) : whole;
      };
    } else {
      turned.shape = {shape[0] * shape[1], shape[2]};
      turned.bring = [bring = tensor.bring] {
        const Tensor whole = bring();
        return whole.defined() ? whole.reshape({-1, whole.size(2)}) : whole;
      };
    }
    files.push_back(std::move(turned));
  }
  write_safetensors(directory / kTensorFile, files);
  write_file(directory / kConfigFile, to_pretty_json(to_json(told)));
}

void write_adapter(const fs::path& directory, const AdapterTensors& tensors) {
  check_whole(tensors.weights());
  // One copy: each waits for what the device has to do.
  const Tensor host_N = tensors.weights().flat().cpu();
  std::vector<TensorToWrite> whole;
  for (const NamedWeight& weight : tensors.weights().tensors()) {
    const Tensor view = Weights::view(host_N, weight);
    whole.push_back({weight.name, weight.full_shape, at::kFloat, [view] { return view; }});
  }
  write_adapter(directory, tensors.form(), whole);
  sync_directory(directory);
}

void load_adapters(Network& network, const fs::path& directory, const comm::Mesh& mesh) {
  const AdapterFile file(directory, network.config());
  add_adapters(network, file.form(), mesh);
  file.read_into(*network.adapters()->at(0));
}

}  // namespace slime::model
