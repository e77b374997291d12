// A delta in a folder (model/weight_delta.h).

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <map>

#include "core/error.h"
#include "core/field_reader.h"
#include "core/json.h"
#include "model/safetensors.h"
#include "model/weight_delta.h"

namespace slime::model {
namespace {

constexpr const char* kBytes = "delta.safetensors";
constexpr const char* kIndex = "delta.json";
constexpr std::array<std::string_view, 3> kForms{"xor", "overwrite", "whole"};

uint64_t checksum_from(const std::string& text, const std::string& where) {
  uint64_t checksum = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, checksum, 16);
  if (error != std::errc{} || rest != end || text.size() != 16)
    throw ConfigError(fmt::format("{}: \"{}\" is no checksum", where, text));
  return checksum;
}

TensorDelta::Form form_from(const std::string& word, const std::string& where) {
  for (std::size_t i = 0; i < kForms.size(); ++i)
    if (kForms[i] == word) return static_cast<TensorDelta::Form>(i);
  throw ConfigError(fmt::format("{}: \"{}\" is no form of a change", where, word));
}

}  // namespace

void write_delta(const WeightDelta& delta, const Weights& weights,
                 const std::filesystem::path& directory, WeightVersion version,
                 WeightVersion base_version) {
  NamedTensors bytes;
  json::object tensors;
  for (const TensorDelta& tensor : delta.tensors) {
    const std::string& name = weights.tensors().at(tensor.tensor).name;
    bytes.emplace_back(name, at::from_blob(const_cast<char*>(tensor.bytes.data()),
                                           {static_cast<int64_t>(tensor.bytes.size())}, at::kByte));
    tensors[name] = {{"form", kForms.at(static_cast<std::size_t>(tensor.form))},
                     {"checksum", fmt::format("{:016x}", tensor.checksum)}};
  }
  write_safetensors(directory / kBytes, bytes);
  write_file(directory / kIndex, to_pretty_json(json::object{{"version", version},
                                                             {"base_version", base_version},
                                                             {"checksum_format", "xxh64"},
                                                             {"tensors", std::move(tensors)}}));
  sync_directory(directory);
}

WeightDelta read_delta(const std::filesystem::path& directory, const Weights& weights) {
  const std::string where = (directory / kIndex).string();
  const json::value index = read_json_file(directory / kIndex);
  const json::value* listed =
      index.is_object() ? index.get_object().if_contains("tensors") : nullptr;
  if (listed == nullptr || !listed->is_object())
    throw ConfigError(where + ": lists no \"tensors\"");
  const SafetensorsFile file(directory / kBytes);
  if (file.tensors().size() != listed->get_object().size())
    throw ConfigError(fmt::format("{}: lists {} tensors, {} has {}", where,
                                  listed->get_object().size(), kBytes, file.tensors().size()));
  std::map<std::string, uint32_t> known;
  for (const NamedWeight& weight : weights.tensors())
    known.emplace(weight.name, static_cast<uint32_t>(known.size()));
  WeightDelta delta;
  for (const auto& [name, entry] : listed->get_object()) {
    const auto tensor = known.find(std::string(name));
    if (tensor == known.end())
      throw ConfigError(fmt::format("{}: {} is no tensor of the model", where, std::string(name)));
    if (!entry.is_object())
      throw ConfigError(fmt::format("{}: {} is no object", where, tensor->first));
    const FieldReader fields(entry.get_object(), where + ": " + tensor->first);
    const auto stored = file.tensors().find(tensor->first);
    if (stored == file.tensors().end() || stored->second.dtype != at::kByte)
      throw ConfigError(fmt::format("{}: {} has no bytes in {}", where, tensor->first, kBytes));
    const Tensor bytes = file.read(tensor->first);
    delta.tensors.push_back(
        {.tensor = tensor->second,
         .form = form_from(fields.text("form").value_or(""), where),
         .checksum = checksum_from(fields.text("checksum").value_or(""), where),
         .bytes = {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()}});
  }
  return delta;
}

}  // namespace slime::model
