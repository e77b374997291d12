#include "exports/export_model.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/replace_file.h"
#include "kernels/matrix_formats.h"
#include "model/adapter_files.h"
#include "model/config.h"
#include "model/merge_adapters.h"
#include "model/model_files.h"
#include "model/network.h"
#include "model/safetensors.h"
#include "model/save.h"

namespace slime::exports {
namespace {

namespace fs = std::filesystem;

using kernels::MatrixFormat;

constexpr uint64_t kShardBytes = uint64_t{5} << 30;
constexpr int64_t kBlock = 128;

/// What is part of a model beside its weights and config.json.
bool is_companion(const fs::path& path) {
  static const std::set<std::string> kSuffixes{".json", ".jinja", ".txt", ".model", ".tiktoken"};
  const std::string name = path.filename().string();
  if (name == "config.json" || name == "run.json" || name.ends_with(".index.json")) return false;
  return kSuffixes.contains(path.extension().string());
}

void copy_companions(const fs::path& source, const fs::path& target) {
  const auto copy = [&](const fs::path& from, const fs::path& to) {
    // A snapshot of the hub's cache is links to its blobs.
    fs::copy_file(fs::canonical(from), to);
    sync_path(to);
  };
  for (const fs::directory_entry& entry : fs::directory_iterator(source))
    if (entry.is_regular_file() && is_companion(entry.path()))
      copy(entry.path(), target / entry.path().filename());
  const fs::path templates = source / "additional_chat_templates";
  if (!fs::is_directory(templates)) return;
  fs::create_directory(target / templates.filename());
  for (const fs::directory_entry& entry : fs::directory_iterator(templates))
    if (entry.is_regular_file() && entry.path().extension() == ".jinja")
      copy(entry.path(), target / templates.filename() / entry.path().filename());
}

/// The optimizer's float32 weights of a checkpoint, by name.
class MasterWeights {
 public:
  explicit MasterWeights(const fs::path& checkpoint) {
    const fs::path folder = checkpoint / "optimizer";
    if (!fs::is_directory(folder)) return;
    std::vector<fs::path> paths;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("master") && name.ends_with(".safetensors"))
        paths.push_back(entry.path());
    }
    for (const fs::path& path : paths) {
      files_.push_back(std::make_unique<model::SafetensorsFile>(path));
      for (const auto& [name, tensor] : files_.back()->tensors()) {
        if (tensor.dtype == at::kFloat) places_[name] = files_.back().get();
      }
    }
  }
  const model::SafetensorsFile* find(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : found->second;
  }

 private:
  std::vector<std::unique_ptr<model::SafetensorsFile>> files_;
  std::map<std::string, const model::SafetensorsFile*> places_;
};

/// How each tensor of a model is written.
struct TensorRules {
  std::set<std::string> weights;  // that are trained: they change their precision
  std::set<std::string> as_codes;
  std::vector<std::string> plain_matrices;  // beside them, without the embedding
};

TensorRules rules_of(const model::ModelConfig& config, ExportPrecision precision) {
  model::Precision shapes{.device = at::kMeta};
  if (precision == ExportPrecision::kFp8) shapes.matrices = MatrixFormat::kFp8Blocks;
  const auto network = model::make_blank_network(config, shapes);
  TensorRules rules;
  for (const model::NamedWeight& weight : network->weights().tensors()) {
    if (!weight.keeps_stored_precision) rules.weights.insert(weight.name);
    if (weight.offset < 0) {
      if (weight.full_shape.size() != 2)
        throw ConfigError(fmt::format(
            "--dtype fp8: {} is several matrices in one tensor, for which the block form has no "
            "names; bf16 works",
            weight.name));
      rules.as_codes.insert(weight.name);
    } else if (weight.full_shape.size() == 2 && weight.name.ends_with(".weight") &&
               weight.name.find("embed") == std::string::npos) {
      rules.plain_matrices.push_back(
          weight.name.substr(0, weight.name.size() - std::string_view(".weight").size()));
    }
  }
  if (precision == ExportPrecision::kFp8 && rules.as_codes.empty())
    throw ConfigError("--dtype fp8: no matrix of this model is stored in codes");
  return rules;
}

/// Codes and factors of a matrix, made once for both.
class Codes {
 public:
  explicit Codes(std::function<Tensor()> bring) : bring_(std::move(bring)) {}

  Tensor codes() {
    make();
    return std::exchange(codes_, {});
  }
  Tensor scales() {
    if (!scales_.defined()) make();
    return std::exchange(scales_, {});
  }

 private:
  /// Of the numbers as bfloat16 has them, as an engine makes them.
  void make() {
    const Tensor plain = bring_().to(at::kBFloat16).contiguous();
    const kernels::FormatRow& format = kernels::row_of(MatrixFormat::kFp8Blocks);
    codes_ = at::empty(plain.sizes(), at::TensorOptions().dtype(format.code));
    scales_ = at::empty(
        {kernels::scale_rows(format, plain.size(0)), kernels::scale_columns(format, plain.size(1))},
        at::TensorOptions().dtype(at::kFloat));
    kernels::quantise_(format, plain, codes_, scales_);
  }

  const std::function<Tensor()> bring_;
  Tensor codes_, scales_;
};

void add_codes(const std::string& name, const std::vector<int64_t>& shape,
               std::function<Tensor()> bring, std::vector<model::TensorToWrite>& out) {
  const kernels::FormatRow& format = kernels::row_of(MatrixFormat::kFp8Blocks);
  const auto codes = std::make_shared<Codes>(std::move(bring));
  out.push_back({.name = name, .shape = shape, .dtype = format.code, .bring = [codes] {
                   return codes->codes();
                 }});
  out.push_back(
      {.name = name + "_scale_inv",
       .shape = {kernels::scale_rows(format, shape[0]), kernels::scale_columns(format, shape[1])},
       .dtype = at::kFloat,
       .bring = [codes] { return codes->scales(); }});
}

at::ScalarType written_type(ExportPrecision precision, at::ScalarType stored) {
  switch (precision) {
    case ExportPrecision::kAsStored:
      return stored;
    case ExportPrecision::kFloat32:
      return at::kFloat;
    default:
      return at::kBFloat16;
  }
}

json::object quantization_of(const TensorRules& rules) {
  json::array plain;
  for (const std::string& name : rules.plain_matrices) plain.emplace_back(name);
  return {{"quant_method", "fp8"},
          {"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"weight_block_size", {kBlock, kBlock}},
          {"modules_to_not_convert", std::move(plain)}};
}

void write_config(const fs::path& source, const fs::path& target, ExportPrecision precision,
                  const TensorRules& rules) {
  json::value config = read_json_file(source / "config.json");
  if (!config.is_object())
    throw ConfigError(fmt::format("{}: is no object", (source / "config.json").string()));
  if (precision == ExportPrecision::kBfloat16 || precision == ExportPrecision::kFp8)
    model::tell_dtype(config.get_object(), at::kBFloat16);
  if (precision == ExportPrecision::kFloat32) model::tell_dtype(config.get_object(), at::kFloat);
  if (precision == ExportPrecision::kFp8)
    config.get_object()["quantization_config"] = quantization_of(rules);
  model::write_file(target / "config.json", to_pretty_json(config));
}

}  // namespace

ExportPrecision export_precision(const std::string& word) {
  if (word.empty()) return ExportPrecision::kAsStored;
  if (word == "bf16" || word == "bfloat16") return ExportPrecision::kBfloat16;
  if (word == "fp32" || word == "float32") return ExportPrecision::kFloat32;
  if (word == "fp8") return ExportPrecision::kFp8;
  throw ConfigError(fmt::format("--dtype {}: should be bf16, fp32 or fp8", word));
}

void export_model(const fs::path& source, const fs::path& target, ExportPrecision precision) {
  const model::ModelConfig config = model::read_model_config(source);
  if (config.stored_form != model::StoredForm::kPlain && precision != ExportPrecision::kAsStored)
    throw ConfigError(
        fmt::format("{}: its weights are in low precision already; without --dtype they are "
                    "copied as they are",
                    source.string()));
  const TensorRules rules = rules_of(config, precision);
  const model::ModelFiles files(source);
  std::optional<MasterWeights> masters;
  if (precision == ExportPrecision::kFloat32) masters.emplace(source);
  std::vector<model::TensorToWrite> tensors;
  for (const auto& [name, place] : files.tensors()) {
    const model::SafetensorsFile* file = place.file;
    if (const auto* master = masters ? masters->find(name) : nullptr) file = master;
    const auto bring = [file, name = name] { return file->read(name); };
    if (rules.as_codes.contains(name)) {
      add_codes(name, place.tensor->shape, bring, tensors);
      continue;
    }
    // Constants and tensors that a model wants wide stay what they are.
    const bool is_weight = rules.weights.contains(name) && at::isFloatingType(place.tensor->dtype);
    tensors.push_back(
        {.name = name,
         .shape = place.tensor->shape,
         .dtype = is_weight ? written_type(precision, place.tensor->dtype) : place.tensor->dtype,
         .bring = bring});
  }
  model::write_sharded(target, "model", tensors, kShardBytes);
  write_config(source, target, precision, rules);
  copy_companions(source, target);
  model::sync_directory(target);
}

void export_merged(const fs::path& base, const fs::path& adapter, const fs::path& target,
                   ExportPrecision precision) {
  std::string dtype = model::read_model_config(base).dtype;
  std::unique_ptr<model::Network> merged;
  {
    const auto network = model::load_network(base, model::Precision::of(dtype));
    model::load_adapters(*network, adapter);
    merged = model::merged(*network);
  }
  if (precision == ExportPrecision::kFloat32) dtype = "float32";
  if (precision == ExportPrecision::kBfloat16 || precision == ExportPrecision::kFp8)
    dtype = "bfloat16";
  // Codes are made of whole files, which go when the rest is written.
  const bool has_codes = precision == ExportPrecision::kFp8;
  const fs::path whole = has_codes ? target / ".merged" : target;
  if (has_codes) fs::create_directory(whole);
  model::save_network(*merged, whole, {.dtype = dtype, .shard_bytes = kShardBytes});
  merged.reset();
  copy_companions(base, whole);
  if (has_codes) {
    export_model(whole, target, precision);
    fs::remove_all(whole);
  }
  model::sync_directory(target);
}

void make_whole(const fs::path& out, const std::function<void(const fs::path&)>& fill) {
  const fs::path whole = fs::absolute(out).lexically_normal();
  const fs::path path = whole.has_filename() ? whole : whole.parent_path();
  if (fs::exists(fs::symlink_status(path)))
    throw ConfigError(fmt::format("{}: is there already, and is not replaced", out.string()));
  if (!fs::is_directory(path.parent_path()))
    throw ConfigError(
        fmt::format("{}: there is no folder {}", out.string(), path.parent_path().string()));
  fs::path unfinished = path;
  unfinished += fmt::format(".tmp-{}", ::getpid());
  try {
    fs::create_directory(unfinished);
    fill(unfinished);
    model::sync_directory(unfinished);
    // Not fs::rename, which replaces an empty folder that somebody has made meanwhile.
    if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0)
      throw ConfigError(fmt::format("{}: {}", out.string(), std::strerror(errno)));
    model::sync_directory(path.parent_path());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
}

}  // namespace slime::exports
